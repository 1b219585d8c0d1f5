// A fusion's callable: looks for a plan that the inputs fit and runs it; everything else goes to the Python function that
// it stands in for. Built by extension.py for the running interpreter and torch.
#include "plan.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <structmember.h>

#include <cstddef>

namespace {

using tf::Plan;

struct Call {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* python;  // the executable's Python function: plans, and answers for inputs that are not as expected
  PyObject* last;    // the executable's list of one: the key of the last call
  Py_ssize_t count;  // inputs
  unsigned long long served;
  std::vector<std::shared_ptr<const Plan>>* plans;  // few: each is told from the others by the first strides that differ
  size_t recent;
};

// The plan that the inputs fit, looking at the last one first; null if there is none, or a mode wants to see each call.
std::shared_ptr<const Plan> find(Call* me, PyObject* const* inputs, tf::Words& words) {
  if (at::impl::torch_function_mode_enabled()) return nullptr;
  words.resize(2 * static_cast<size_t>(me->count));
  const auto& plans = *me->plans;
  for (size_t k = 0; k < plans.size(); ++k) {
    const size_t at = (me->recent + k) % plans.size();
    const std::shared_ptr<const Plan> plan = plans[at];  // a dispatch mode that sees an element read may do anything
    if (plan->fits(inputs, words)) {
      me->recent = at;
      return plan;
    }
  }
  return nullptr;
}

void remember(Call* me, PyObject* key) {  // what `Executable.report` looks up
  PyObject* before = PyList_GET_ITEM(me->last, 0);
  if (before == key) return;
  PyList_SET_ITEM(me->last, 0, Py_NewRef(key));
  Py_XDECREF(before);
}

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords) {
  HANDLE_TH_ERRORS
  Call* me = reinterpret_cast<Call*>(self);
  tf::Words words;
  if (PyVectorcall_NARGS(flags) == me->count && !(keywords && PyTuple_GET_SIZE(keywords))) {
    if (const auto plan = find(me, args, words)) {
      remember(me, plan->key.ptr());
      ++me->served;
      return plan->run(args, words);
    }
  }
  if (me->python) return PyObject_Vectorcall(me->python, args, flags, keywords);
  PyErr_SetString(PyExc_RuntimeError, "the fusion was called while it was being deleted");
  return nullptr;
  END_HANDLE_TH_ERRORS
}

PyObject* add(PyObject* self, PyObject* args) {
  HANDLE_TH_ERRORS
  PyObject *key, *patterns, *plan, *launchers, *device;
  int only_device;
  if (!PyArg_ParseTuple(args, "OOOOOp", &key, &patterns, &plan, &launchers, &device, &only_device)) return nullptr;
  Call* me = reinterpret_cast<Call*>(self);
  me->plans->push_back(std::make_shared<const Plan>(py::reinterpret_borrow<py::object>(key), patterns, plan, launchers, device, only_device));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* remove(PyObject* self, PyObject* key) {
  HANDLE_TH_ERRORS
  auto& plans = *reinterpret_cast<Call*>(self)->plans;
  std::vector<std::shared_ptr<const Plan>> kept, dropped;  // dropped at the end: that may run Python code
  for (auto& p : plans) (key == Py_None || p->key.ptr() == key ? dropped : kept).push_back(std::move(p));
  plans.swap(kept);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *python, *last;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(args, "OO!n", &python, &PyList_Type, &last, &count)) return nullptr;
  Call* me = reinterpret_cast<Call*>(type->tp_alloc(type, 0));
  if (!me) return nullptr;
  me->vectorcall = call;
  me->python = Py_NewRef(python);
  me->last = Py_NewRef(last);
  me->count = count;
  me->plans = new std::vector<std::shared_ptr<const Plan>>();
  return reinterpret_cast<PyObject*>(me);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Call* me = reinterpret_cast<Call*>(self);
  Py_VISIT(me->python);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Call*>(self)->python);
  return 0;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  Py_XDECREF(reinterpret_cast<Call*>(self)->last);
  delete reinterpret_cast<Call*>(self)->plans;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Call, vectorcall), READONLY, nullptr},
                         {"served", T_ULONGLONG, offsetof(Call, served), READONLY, "calls that went no other way"},
                         {nullptr, 0, 0, 0, nullptr}};

PyMethodDef methods[] = {{"add", add, METH_VARARGS, "add(key, patterns, plan, launchers, device, only_device): one more plan"},
                         {"remove", remove, METH_O, "remove(key): forget a plan, or all for None"},
                         {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

PyType_Spec spec = {"tf_native.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "tf_native", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_tf_native() {
  PyObject* made = PyModule_Create(&module);
  PyObject* type = made ? PyType_FromSpec(&spec) : nullptr;
  if (!type || PyModule_AddObject(made, "Call", type)) return nullptr;
  return made;
}
