// A launch plan in C++: whether a call's inputs are those it was made for, and then what `LaunchPlan.python` prints:
// allocate, launch, make outputs.
#pragma once
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <string>

#include "inputs.h"
#include "launch.h"

#ifdef TF_CUDA
#include <ATen/cuda/EmptyTensor.h>
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);  // torch's stable C interface
#endif

namespace tf {

// Two words for each input, one for the address of each buffer, one for each address inside an input that is written to.
using Words = c10::SmallVector<uint64_t, 32>;

struct Buffer {
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype;

  explicit Buffer(py::handle allocation)
      : sizes(allocation.attr("shape").cast<std::vector<int64_t>>()),
        strides(allocation.attr("strides").cast<std::vector<int64_t>>()),
        dtype(scalar_type_of(allocation.attr("dtype"))) {}

  at::Tensor allocate(c10::Device device) const {
#ifdef TF_CUDA
    if (device.is_cuda()) return at::Tensor(at::detail::empty_strided_cuda(sizes, strides, dtype, device));
#endif
    return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
  }
};

struct Output {
  bool of_input;
  size_t index;
  bool view = false;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;

  explicit Output(py::handle recipe)
      : of_input(recipe.attr("kind").cast<std::string>() == "input"), index(recipe.attr("index").cast<size_t>()) {
    const py::object given = recipe.attr("view");
    if (given.is_none()) return;
    view = true;
    sizes = given[py::int_(0)].cast<std::vector<int64_t>>();
    strides = given[py::int_(1)].cast<std::vector<int64_t>>();
    offset = given[py::int_(2)].cast<int64_t>();
  }

  // A new reference. Views go through torch's dispatcher, so that autograd knows of them.
  PyObject* make(PyObject* const* inputs, const at::Tensor* buffers) const {
    if (of_input && !view) return Py_NewRef(inputs[index]);
    const at::Tensor& base = of_input ? THPVariable_Unpack(inputs[index]) : buffers[index];
    if (!view) return THPVariable_Wrap(base);
    return THPVariable_Wrap(base.as_strided(sizes, strides, offset + (of_input ? base.storage_offset() : 0)));
  }
};

class Plan {
 public:
  // `key` names it in the executable's table; `patterns` are extension.py's, `plan` is a LaunchPlan.
  Plan(py::object key, py::handle patterns, py::handle plan, py::handle launchers, py::handle device, bool only_device)
      : key(std::move(key)), device_(device_of(device)), guarded_(device_.is_cuda() && !only_device) {
#ifndef TF_CUDA
    if (device_.is_cuda()) throw py::value_error("a plan is for CUDA, and the extension was built without");
#endif
    for (py::handle p : patterns) inputs_.emplace_back(p, device_);
    for (py::handle a : plan.attr("allocations")) buffers_.emplace_back(a);
    for (py::handle o : plan.attr("outputs")) outputs_.emplace_back(o);
    updated_ = plan.attr("updated").cast<std::vector<size_t>>();
    auto launcher = py::iter(launchers);
    for (py::handle call : plan.attr("calls")) {
      std::vector<size_t> arguments;
      for (py::handle place : call.attr("arguments")) arguments.push_back(word_of(py::reinterpret_borrow<py::tuple>(place)));
      kernels_.emplace_back(py::reinterpret_borrow<py::object>(*launcher), std::move(arguments));
      ++launcher;
    }
  }

  // Whether the inputs are those that this was made for; then `words` has theirs.
  bool fits(PyObject* const* inputs, Words& words) const {
    for (size_t k = 0; k < inputs_.size(); ++k)
      if (!inputs_[k].read(inputs[k], &words[2 * k])) return false;
    for (const size_t k : updated_)
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (i != k && !inputs_[i].number() && inputs_[k].overlaps(words[2 * k], inputs_[i], words[2 * i])) return false;
    return true;
  }

  // The list of outputs, or null with a Python error set. Throws what torch throws.
  PyObject* run(PyObject* const* inputs, Words& words) const {
    std::optional<c10::DeviceGuard> guard;
    if (guarded_) guard.emplace(device_);
    c10::SmallVector<at::Tensor, 8> buffers;
    words.resize(2 * inputs_.size());
    for (const Buffer& b : buffers_) {
      buffers.push_back(b.allocate(device_));
      words.push_back(reinterpret_cast<uintptr_t>(buffers.back().data_ptr()));
    }
    for (const auto& [word, bytes] : inside_) words.push_back(words[word] + bytes);
    if (!kernels_.empty()) launch(inputs, words);
    for (const size_t k : updated_) {
      const at::Tensor& tensor = THPVariable_Unpack(inputs[k]);
      if (!tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
    }
    auto list = py::reinterpret_steal<py::object>(PyList_New(static_cast<Py_ssize_t>(outputs_.size())));
    if (!list) return nullptr;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      PyObject* made = outputs_[k].make(inputs, buffers.data());
      if (!made) return nullptr;
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(k), made);
    }
    return list.release().ptr();
  }

  const py::object key;

 private:
  size_t word_of(const py::tuple& place) {
    const auto kind = place[0].cast<std::string>();
    const auto index = place[1].cast<size_t>();
    if (kind == "buffer") return 2 * inputs_.size() + index;
    if (kind == "imag") return 2 * index + 1;
    if (kind != "input" && kind != "real") throw py::value_error("a kernel's argument is of an unknown kind");
    if (place.size() == 2) return 2 * index;
    inside_.emplace_back(2 * index, place[2].cast<uint64_t>());
    return 2 * inputs_.size() + buffers_.size() + inside_.size() - 1;
  }

  void launch(PyObject* const* inputs, Words& words) const {
    void* stream = nullptr;
#ifdef TF_CUDA
    if (device_.is_cuda() && aoti_torch_get_current_cuda_stream(device_.index(), &stream))
      throw std::runtime_error("torch could not name the current CUDA stream");
#endif
    for (size_t k = 0; k < kernels_.size(); ++k) {
      int refused = 0;
      if (kernels_[k].compiled()) {
        Py_BEGIN_ALLOW_THREADS
        while (k < kernels_.size() && kernels_[k].compiled() && !(refused = kernels_[k].launch(stream, words.data()))) ++k;
        Py_END_ALLOW_THREADS
      }
      if (k == kernels_.size()) return;
      kernels_[k].launch_from_python(stream, [&](size_t word) -> py::object {
        const bool number = word < 2 * inputs_.size() && inputs_[word / 2].number();
        return number ? inputs_[word / 2].object(inputs[word / 2], word % 2) : py::int_(words[word]);
      });
    }
  }

  c10::Device device_;
  bool guarded_;  // another device may be current
  std::vector<Input> inputs_;
  std::vector<size_t> updated_;  // inputs that are written into; none of them shares memory with another one
  std::vector<Buffer> buffers_;
  std::vector<std::pair<size_t, uint64_t>> inside_;  // a word, and bytes to add to it
  std::vector<Kernel> kernels_;
  std::vector<Output> outputs_;
};

}  // namespace tf
