// The third part of every generated unit: what reading and writing at computed indices needs.

namespace tf {

// An index that must lie in [0, size): any other one stops the kernel with an error, before it reaches memory.
TF_FN long long checked(long long index, long long size) {
  if ((unsigned long long)index < (unsigned long long)size) return index;
#ifdef TF_HOST
  tf_host_fail(index, size);
#else
  asm volatile("trap;");
#endif
  return 0;
}

}  // namespace tf
