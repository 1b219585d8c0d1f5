// A kernel launch as one Python call: reads the arguments, patches a copy of the launch configuration and calls the
// driver. Built by runtime/compiled_launcher.py for the running interpreter. Needs no CUDA headers: the driver's entry
// point arrives as an address, and its two structures are spelled out below as cuda.h lays them out.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

namespace {

struct LaunchAttribute {  // CUlaunchAttribute
  uint32_t id;
  uint32_t pad;
  uint64_t value[8];
};

struct LaunchConfig {  // CUlaunchConfig
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  uint32_t attribute_count;
};

constexpr uint32_t kCooperative = 2;  // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
constexpr int kMaxArguments = 512;    // 4 KB of parameters hold no more

using LaunchKernelEx = int (*)(const LaunchConfig*, void* function, void** parameters, void** extra);

struct Launcher {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  LaunchKernelEx driver;
  void* function;
  LaunchConfig config;
  LaunchAttribute attribute;
  Py_ssize_t count;
  char* codes;        // one struct-module code an argument
  PyObject* refused;  // called with the same arguments if the driver refuses: it launches again, or says why not
};

void read(PyObject* given, char code, uint64_t* word) {  // what does not fit leaves a Python error behind
  if (code == 'f') {
    float value = (float)PyFloat_AsDouble(given);
    memcpy(word, &value, sizeof value);
  } else if (code == 'd') {
    double value = PyFloat_AsDouble(given);
    memcpy(word, &value, sizeof value);
  } else if (code == '?') {
    *word = PyObject_IsTrue(given) != 0;
  } else {
    *word = PyLong_AsUnsignedLongLongMask(given);
  }
}

PyObject* launch(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords) {
  Launcher* me = (Launcher*)self;
  Py_ssize_t given = PyVectorcall_NARGS(flags);
  if (given != me->count + 1 || (keywords && PyTuple_GET_SIZE(keywords))) {
    PyErr_Format(PyExc_TypeError, "a launch takes the stream and %zd arguments, got %zd", me->count, given - 1);
    return nullptr;
  }
  uint64_t words[kMaxArguments];
  void* parameters[kMaxArguments];
  LaunchConfig config = me->config;
  if (config.attribute_count) config.attributes = &me->attribute;
  config.stream = (void*)(uintptr_t)PyLong_AsUnsignedLongLongMask(args[0]);
  for (Py_ssize_t k = 0; k < me->count; ++k) {
    read(args[k + 1], me->codes[k], &words[k]);
    parameters[k] = &words[k];
  }
  if (PyErr_Occurred()) return nullptr;
  int result;
  Py_BEGIN_ALLOW_THREADS
  result = me->driver(&config, me->function, parameters, nullptr);
  Py_END_ALLOW_THREADS
  if (result) return PyObject_Vectorcall(me->refused, args, (size_t)given, nullptr);
  Py_RETURN_NONE;
}

void dealloc(PyObject* self) {
  Launcher* me = (Launcher*)self;
  PyTypeObject* type = Py_TYPE(self);
  PyMem_Free(me->codes);
  Py_XDECREF(me->refused);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  unsigned long long driver, function;
  uint32_t grid[3], block[3], shared_bytes;
  int cooperative;
  const char* codes;
  Py_ssize_t count;
  PyObject* refused;
  if (!PyArg_ParseTuple(args, "KK(III)(III)Ips#O", &driver, &function, &grid[0], &grid[1], &grid[2], &block[0], &block[1],
                        &block[2], &shared_bytes, &cooperative, &codes, &count, &refused))
    return nullptr;
  if (count > kMaxArguments) {
    PyErr_Format(PyExc_ValueError, "a kernel has %zd arguments, expected %d at most", count, kMaxArguments);
    return nullptr;
  }
  Launcher* me = (Launcher*)type->tp_alloc(type, 0);
  if (!me) return nullptr;
  Py_INCREF(refused);
  me->refused = refused;
  me->codes = (char*)PyMem_Malloc((size_t)count + 1);
  if (!me->codes) {
    Py_DECREF((PyObject*)me);
    return PyErr_NoMemory();
  }
  memcpy(me->codes, codes, (size_t)count);
  me->vectorcall = launch;
  me->driver = (LaunchKernelEx)(uintptr_t)driver;
  me->function = (void*)(uintptr_t)function;
  memcpy(me->config.grid, grid, sizeof grid);
  memcpy(me->config.block, block, sizeof block);
  me->config.shared_bytes = shared_bytes;
  me->attribute.id = kCooperative;
  me->attribute.value[0] = 1;
  me->config.attribute_count = cooperative ? 1 : 0;
  me->count = count;
  return (PyObject*)me;
}

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, (void*)make},
                       {Py_tp_dealloc, (void*)dealloc},
                       {Py_tp_call, (void*)PyVectorcall_Call},
                       {Py_tp_members, members},
                       {0, nullptr}};

PyType_Spec spec = {"tf_launcher.Launcher", sizeof(Launcher), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "tf_launcher", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_tf_launcher() {
  PyObject* made = PyModule_Create(&module);
  PyObject* type = made ? PyType_FromSpec(&spec) : nullptr;
  if (!type || PyModule_AddObject(made, "Launcher", type)) return nullptr;
  return made;
}
