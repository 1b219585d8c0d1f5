// One kernel's launch: the driver's launch record, and the call. Needs no CUDA headers: the driver's entry point arrives
// as an address, and its two structures are spelled out as cuda.h lays them out.
#pragma once
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <vector>

namespace tf {

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
constexpr size_t kMaxArguments = 512;  // 4 KB of parameters hold no more

using LaunchKernelEx = int (*)(const LaunchConfig*, void* function, void** parameters, void** extra);

// Arguments are positions in a call's words, of which plan.h says what they are.
class Kernel {
 public:
  // `launcher` is the Python launcher; its `recipe`, if it has one, says how to launch without it (runtime/launch.py).
  Kernel(py::object launcher, std::vector<size_t> arguments) : launcher_(std::move(launcher)), arguments_(std::move(arguments)) {
    if (!py::hasattr(launcher_, "recipe")) return;
    py::object recipe = launcher_.attr("recipe");
    driver_ = reinterpret_cast<LaunchKernelEx>(recipe.attr("driver").cast<uintptr_t>());
    function_ = reinterpret_cast<void*>(recipe.attr("function").cast<uintptr_t>());
    for (int k = 0; k < 3; ++k) {
      config_.grid[k] = recipe.attr("grid")[py::int_(k)].cast<uint32_t>();
      config_.block[k] = recipe.attr("block")[py::int_(k)].cast<uint32_t>();
    }
    config_.shared_bytes = recipe.attr("shared_bytes").cast<uint32_t>();
    config_.attribute_count = recipe.attr("cooperative").cast<bool>();
    attribute_.id = kCooperative;
    attribute_.value[0] = 1;
    if (arguments_.size() > kMaxArguments) throw py::value_error("a kernel has more arguments than a launch can carry");
  }

  bool compiled() const { return driver_ != nullptr; }

  // The driver's result, 0 for success. Touches no Python object.
  int launch(void* stream, uint64_t* words) const {
    void* parameters[kMaxArguments];
    for (size_t k = 0; k < arguments_.size(); ++k) parameters[k] = &words[arguments_[k]];
    LaunchConfig config = config_;
    LaunchAttribute attribute = attribute_;
    config.attributes = config.attribute_count ? &attribute : nullptr;
    config.stream = stream;
    return driver_(&config, function_, parameters, nullptr);
  }

  // The same through Python: on the host backend, and for a launch that the driver refused, which it repeats or explains.
  // `object(word)` is the word as a Python object.
  template <typename Object>
  void launch_from_python(void* stream, const Object& object) const {
    py::tuple given(arguments_.size() + 1);
    given[0] = py::int_(reinterpret_cast<uintptr_t>(stream));
    for (size_t k = 0; k < arguments_.size(); ++k) given[k + 1] = object(arguments_[k]);
    launcher_(*given);
  }

 private:
  py::object launcher_;
  std::vector<size_t> arguments_;
  LaunchKernelEx driver_ = nullptr;
  void* function_ = nullptr;
  LaunchConfig config_{};
  LaunchAttribute attribute_{};
};

}  // namespace tf
