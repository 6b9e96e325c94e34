//! The operators that a view refuses. A base class holds them, so that the class of views is only
//! about reading.

// A macro of this crate makes the methods below, so the lint also sees the code that PyO3 generates
// for them.
#![allow(unsafe_op_in_unsafe_fn)]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBool, PyDict, PyTuple};

/// The base class of views. It refuses arithmetic and the methods of arrays, because they would read
/// the file without the caller noticing, perhaps many times. `np.asarray(view)` reads the file once.
#[pyclass(frozen, subclass, module = "ringmain._ringmain", name = "_NoArithmetic")]
#[derive(Debug)]
pub(crate) struct NoArithmetic;

fn refusal(ufunc: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "ContiguousMemmap does not support ufunc '{ufunc}' directly — use np.asarray(arr) to read \
         data first."
    ))
}

/// Defines methods that raise an error with the name of the ufunc that NumPy would call.
macro_rules! refuse {
    ($(binary $name:ident $reflected:ident $ufunc:literal;)*
     $(unary $unary:ident $unary_ufunc:literal;)*) => {
        #[pymethods]
        impl NoArithmetic {
            $(fn $name(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> { Err(refusal($ufunc)) }
            fn $reflected(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> { Err(refusal($ufunc)) })*
            $(fn $unary(&self) -> PyResult<()> { Err(refusal($unary_ufunc)) })*

            fn __pow__(&self, _other: &Bound<'_, PyAny>, _modulo: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
                Err(refusal("power"))
            }

            fn __rpow__(&self, _other: &Bound<'_, PyAny>, _modulo: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
                Err(refusal("power"))
            }

            /// Without this, Python would call `__len__`, and a view of a single zero would be true.
            fn __bool__(&self) -> PyResult<bool> {
                Err(PyTypeError::new_err(
                    "the truth value of a ContiguousMemmap is ambiguous — use len(arr) > 0 for its \
                     length, or np.asarray(arr).any() or .all() for its elements.",
                ))
            }

            /// `view == view` is true: `weakref.WeakKeyDictionary` and `WeakSet` compare keys in this way.
            /// Other containers compare identities first. For any other comparison the elements would
            /// have to be read.
            fn __richcmp__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'_, PyAny>,
                op: CompareOp,
            ) -> PyResult<Bound<'py, PyBool>> {
                let py = slf.py();
                let ufunc = match op {
                    CompareOp::Eq if slf.is(other) => return Ok(PyBool::new(py, true).to_owned()),
                    CompareOp::Eq => "equal",
                    CompareOp::Ne => "not_equal",
                    CompareOp::Lt => "less",
                    CompareOp::Le => "less_equal",
                    CompareOp::Gt => "greater",
                    CompareOp::Ge => "greater_equal",
                };
                Err(refusal(ufunc))
            }

            fn __hash__(slf: &Bound<'_, Self>) -> usize {
                slf.as_ptr().addr() >> 4
            }

            #[pyo3(signature = (ufunc, _method, *_inputs, **_kwargs))]
            fn __array_ufunc__(
                &self,
                ufunc: &Bound<'_, PyAny>,
                _method: &Bound<'_, PyAny>,
                _inputs: &Bound<'_, PyTuple>,
                _kwargs: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<()> {
                Err(refusal(&ufunc.getattr("__name__")?.to_string()))
            }
        }
    };
}

refuse! {
    binary __add__ __radd__ "add";
    binary __sub__ __rsub__ "subtract";
    binary __mul__ __rmul__ "multiply";
    binary __matmul__ __rmatmul__ "matmul";
    binary __truediv__ __rtruediv__ "divide";
    binary __floordiv__ __rfloordiv__ "floor_divide";
    binary __mod__ __rmod__ "remainder";
    binary __divmod__ __rdivmod__ "divmod";
    binary __lshift__ __rlshift__ "left_shift";
    binary __rshift__ __rrshift__ "right_shift";
    binary __and__ __rand__ "bitwise_and";
    binary __or__ __ror__ "bitwise_or";
    binary __xor__ __rxor__ "bitwise_xor";
    unary __neg__ "negative";
    unary __pos__ "positive";
    unary __abs__ "absolute";
    unary __invert__ "invert";
}
