// What a plan expects of one input, and the words that a kernel gets of it: the address of a tensor or a number, and where it
// is complex its imaginary part. Whatever is not exactly as expected is not
// read: the Python function answers for it.
#pragma once
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace tf {

inline c10::Device device_of(py::handle device) {  // a torch.device
  const auto type = device.attr("type").cast<std::string>();
  const py::object index = device.attr("index");
  return c10::Device(type == "cuda" ? c10::kCUDA : c10::kCPU, index.is_none() ? -1 : index.cast<c10::DeviceIndex>());
}

inline at::ScalarType scalar_type_of(py::handle dtype) {  // a torch.dtype
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("not a torch.dtype");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

class Input {
 public:
  // `expected` is a TensorPattern, a NumberPattern or an ItemPattern of compiled_call.py.
  Input(py::handle expected, c10::Device device) : device_(device) {
    number_ = py::hasattr(expected, "code");
    item_ = number_ && py::hasattr(expected, "dtype");
    if (number_) {
      code_ = expected.attr("code").cast<char>();
      complex_ = expected.attr("complex").cast<bool>();
    }
    if (item_) device_ = c10::Device(c10::kCPU);
    if (number_ && !item_) return;
    dtype_ = scalar_type_of(expected.attr("dtype"));
    // Nothing but a tensor in memory: no mode, wrapper, conjugate or negative view, sparse or quantised one.
    using Key = c10::DispatchKey;
    plain_ = (device_.is_cuda() ? c10::DispatchKeySet({Key::CUDA, Key::AutogradCUDA, Key::AutocastCUDA, Key::ADInplaceOrView})
                                : c10::DispatchKeySet({Key::CPU, Key::AutogradCPU, Key::AutocastCPU, Key::ADInplaceOrView})).raw_repr();
    if (item_) return;
    sizes_ = expected.attr("shape").cast<std::vector<int64_t>>();
    strides_ = expected.attr("strides").cast<std::vector<int64_t>>();
    low_bits_ = expected.attr("low_bits").cast<uint64_t>();
    bytes_ = expected.attr("bytes").cast<uint64_t>();
  }

  bool number() const { return number_; }

  bool read(PyObject* given, uint64_t* words) const {
    if (!number_) return read_tensor(given, words[0]);
    if (item_) return read_item(given, words);
    if (!complex_) return read_number(given, words[0]);
    if (!PyComplex_CheckExact(given)) return false;
    const Py_complex value = PyComplex_AsCComplex(given);
    return read_float(value.real, words[0]) && read_float(value.imag, words[1]);
  }

  // A number, or one of its parts, as the Python launchers take it.
  py::object object(PyObject* given, bool imaginary) const {
    const auto number = item_ ? py::handle(given).attr("item")() : py::reinterpret_borrow<py::object>(given);
    return complex_ ? number.attr(imaginary ? "imag" : "real") : number;
  }

  // Whether tensors at these addresses may have bytes in common.
  bool overlaps(uint64_t address, const Input& other, uint64_t its_address) const {
    return address < its_address + other.bytes_ && its_address < address + bytes_;
  }

 private:
  // The tensor if it is plain memory of the dtype and device, else null.
  const at::Tensor* plain(PyObject* given) const {
    if (!THPVariable_CheckExact(given)) return nullptr;
    const at::Tensor& tensor = THPVariable_Unpack(given);
    if (!tensor.defined() || (tensor.key_set().raw_repr() & ~plain_)) return nullptr;
    return tensor.scalar_type() == dtype_ && tensor.device() == device_ ? &tensor : nullptr;
  }

  bool read_tensor(PyObject* given, uint64_t& word) const {
    const at::Tensor* found = plain(given);
    if (!found) return false;
    const at::Tensor& tensor = *found;
    if (tensor.sizes() != sizes_ || tensor.strides() != strides_) return false;
    word = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    return (word & 15) == low_bits_;
  }

  bool read_item(PyObject* given, uint64_t* words) const {
    const at::Tensor* tensor = plain(given);
    if (!tensor || tensor->dim()) return false;
    const at::Scalar value = tensor->item();
    words[0] = 0;
    if (complex_) return read_float(value.toComplexDouble().real(), words[0]) && read_float(value.toComplexDouble().imag(), words[1]);
    if (code_ == '?') words[0] = value.toBool();
    if (code_ == 'q') words[0] = static_cast<uint64_t>(value.toLong());
    return code_ == '?' || code_ == 'q' || read_float(value.toDouble(), words[0]);
  }

  bool read_number(PyObject* given, uint64_t& word) const {
    word = 0;
    if (code_ == '?') {
      word = given == Py_True;
      return PyBool_Check(given);
    }
    if (code_ == 'q') {
      if (!PyLong_CheckExact(given)) return false;
      int overflow;
      word = static_cast<uint64_t>(PyLong_AsLongLongAndOverflow(given, &overflow));
      return !overflow;
    }
    return PyFloat_CheckExact(given) && read_float(PyFloat_AS_DOUBLE(given), word);
  }

  bool read_float(double value, uint64_t& word) const {
    word = 0;
    if (code_ == 'd') {
      std::memcpy(&word, &value, sizeof value);
      return true;
    }
    const float narrow = static_cast<float>(value);
    std::memcpy(&word, &narrow, sizeof narrow);
    return code_ == 'f' && std::isfinite(narrow) == std::isfinite(value);
  }

  bool number_;
  bool item_;  // a number that comes as a tensor of rank 0 on the CPU
  bool complex_ = false;
  char code_ = 0;  // of a number: its struct-module code, or that of a complex one's parts
  c10::Device device_;
  std::vector<int64_t> sizes_, strides_;
  at::ScalarType dtype_{};
  uint64_t low_bits_ = 0;  // the address modulo 16
  uint64_t bytes_ = 0;     // from the first element's first byte to the last one's last
  uint64_t plain_ = 0;     // the dispatch keys that it may have
};

}  // namespace tf
