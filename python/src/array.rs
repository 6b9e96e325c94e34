//! NumPy arrays over memory that the engine reads into.
//!
//! Small arrays use NumPy's own memory, which its allocator recycles. Large arrays use a
//! [`Buffer`]: the array's base is a Python object that owns the buffer, so the buffer returns to
//! the pool when the last array or view of it is dropped. If the pool is exhausted because the
//! caller keeps its arrays, a new array gets memory outside the pool: the engine does not limit how much
//! a program keeps, and a wait for the caller to drop an array might never end. Arrays leave the memory
//! of two batches in the pool for every open source, so that kept arrays do not stop a source.

use std::any::Any;
use std::ptr;

use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::Borrowed;
use pyo3::prelude::*;
use ringmain::backends::{self, Error::PoolExhausted};
use ringmain::{Buffer, Engine};

use crate::error::{Failure, Result};

/// Arrays of this size or more use the pool. `malloc` does not keep blocks this large, so the kernel
/// would map and zero new memory for each array.
pub(crate) const POOLED_BYTES_MIN: usize = 64 << 10;

/// The base object of arrays. It owns their memory, which is a buffer or a batch of the engine.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Memory")]
struct ArrayMemory {
    _memory: Box<dyn Any + Send + Sync>,
}

/// Returns the base object of the arrays over `memory`.
pub(crate) fn owner<M: Any + Send + Sync>(py: Python<'_>, memory: M) -> Result<Bound<'_, PyAny>> {
    Ok(Bound::new(py, ArrayMemory { _memory: Box::new(memory) })?.into_any())
}

/// Returns a buffer of `len` bytes, from the engine's pool or, if the pool is exhausted, outside of it.
pub(crate) fn take(engine: &Engine, len: usize) -> backends::Result<Buffer> {
    match engine.try_take_kept(len) {
        Err(PoolExhausted { .. }) => Buffer::unpooled(len),
        taken => taken,
    }
}

/// Returns an array in C order that owns the buffer. The bytes are not copied.
pub(crate) fn from_buffer<'py>(
    mut buffer: Buffer,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    check_len(buffer.len(), descr, shape)?;
    let data = buffer.as_mut_ptr();
    let owner = owner(py, buffer)?;
    // SAFETY: `data` is valid for the bytes of the array (`check_len` compared the lengths) while
    // `owner` lives, because moving a buffer does not move its memory. Nothing else refers to that memory.
    unsafe { over(owner, data, descr, shape) }
}

/// Returns an array in C order over memory that `owner` keeps alive.
///
/// # Safety
/// `data` must be valid for the bytes of such an array while `owner` lives, and only arrays may
/// refer to those bytes during that time.
pub(crate) unsafe fn over<'py>(
    owner: Bound<'py, PyAny>,
    data: *mut u8,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    // SAFETY: the caller promises that `data` is valid.
    let array = unsafe { new_array(descr, shape, data.cast()) }?;
    // SAFETY: both objects are alive; the call takes over the reference to `owner`.
    let failed = unsafe {
        PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_array_ptr(), owner.into_ptr()) != 0
    };
    if failed { Err(PyErr::fetch(py).into()) } else { Ok(array) }
}

/// Returns an uninitialised array in C order, in NumPy's own memory.
pub(crate) fn empty<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    // SAFETY: the data pointer is null, so NumPy allocates the memory.
    unsafe { new_array(descr, shape, ptr::null_mut()) }
}

/// Returns an array to be filled. A large array uses memory of the pool, a small one NumPy's own memory.
pub(crate) fn new<'py>(
    engine: &Engine,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    let bytes = shape.iter().try_fold(descr.itemsize(), |bytes, len| bytes.checked_mul(*len));
    match bytes {
        Some(bytes) if bytes >= POOLED_BYTES_MIN => from_buffer(take(engine, bytes)?, descr, shape),
        // NumPy refuses an array whose size overflows.
        _ => empty(descr, shape),
    }
}

/// Returns an array in C order over `data`, or over memory that NumPy allocates if `data` is null.
///
/// # Safety
/// `data` must be null, or valid for the bytes of such an array while the array lives.
unsafe fn new_array<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
    data: *mut std::ffi::c_void,
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    // `check_len` and NumPy refuse arrays with lengths that do not fit in an `npy_intp`.
    let dims = shape.as_ptr().cast_mut().cast::<npy_intp>();
    let flags = if data.is_null() { 0 } else { NPY_ARRAY_WRITEABLE };
    // SAFETY: the type object and the descriptor come from NumPy, and the call takes over one
    // reference to the descriptor. `dims` has `shape.len()` lengths and is only read. NumPy computes
    // the strides. The caller promises that `data` is null or valid.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, npyffi::NpyTypes::PyArray_Type),
            descr.clone().into_dtype_ptr(),
            shape.len() as i32, // at most 64
            dims,
            ptr::null_mut(),
            data,
            flags,
            ptr::null_mut(),
        );
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}

/// Returns the bytes of an array that this crate just made, or that the caller passed as `out`.
///
/// # Safety
/// The array must be in C order without gaps, writable and alive for `'a`, and nothing else may use
/// its elements during that time. The interpreter lock is released meanwhile, so for an array that was
/// passed as `out` this depends on the user's program: no other thread may touch the array. As in
/// NumPy, a program that touches it anyway sees old or new bytes.
///
/// The bytes of a new array may be uninitialised. The allocator hands them over through NumPy, which
/// the compiler cannot see into, so they count as arbitrary bytes. Readers only write to them until
/// all of them are written.
#[allow(clippy::mut_from_ref)] // `# Safety` requires that the bytes are not shared
pub(crate) unsafe fn bytes_mut<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a mut [u8] {
    let len = nbytes(array);
    if len == 0 {
        return &mut [];
    }
    // SAFETY: a contiguous array has `len` bytes from its data pointer on. The caller promises the
    // rest.
    unsafe { std::slice::from_raw_parts_mut((*array.as_array_ptr()).fields.data.cast(), len) }
}

/// Returns the address of the first element.
pub(crate) fn address(array: &Bound<'_, PyUntypedArray>) -> usize {
    // SAFETY: the object is alive and has the layout that NumPy defines.
    unsafe { (*array.as_array_ptr()).fields.data.addr() }
}

/// Returns the size of all elements in bytes.
pub(crate) fn nbytes(array: &Bound<'_, PyUntypedArray>) -> usize {
    array.len() * array.dtype().itemsize()
}

/// The argument `out`: an array, or a torch tensor in host memory.
pub(crate) struct Out<'py> {
    /// An array over the memory of the argument.
    pub(crate) array: Bound<'py, PyUntypedArray>,
    /// The object that the caller passed. Methods return it.
    pub(crate) object: Bound<'py, PyAny>,
}

impl<'py> FromPyObject<'_, 'py> for Out<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let object = object.to_owned();
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return Ok(Self { array: array.clone(), object });
        }
        let array =
            object.py().import("ringmain._tensors")?.call_method1("memory_of", (&object,))?;
        Ok(Self { array: array.cast_into().map_err(PyErr::from)?, object })
    }
}

/// Returns an error if the bytes of elements of this type and shape cannot be written straight to
/// `out`.
pub(crate) fn check_out(
    out: &Bound<'_, PyUntypedArray>,
    descr: &Bound<'_, PyArrayDescr>,
    shape: &[usize],
) -> Result<()> {
    if !out.dtype().is_equiv_to(descr) {
        let found = out.dtype();
        let native = descr.call_method1("newbyteorder", ("=",))?;
        // Torch has only the native byte order, so a tensor cannot have the dtype of these elements.
        let way_out = if found.eq(native)? {
            ", in the other byte order; read without `out`, and convert the array: .astype(out.dtype)"
        } else {
            ""
        };
        return Err(Failure::type_(format!(
            "out has dtype {found}, but the elements to read have dtype {descr}{way_out}"
        )));
    }
    if out.shape() != shape {
        return Err(Failure::value(format!(
            "out has shape {}, but the elements to read have shape {}",
            tuple_text(out.shape()),
            tuple_text(shape)
        )));
    }
    if !out.is_c_contiguous() {
        return Err(Failure::value("out must be C-contiguous: elements are written in C order"));
    }
    if !is_writable(out) {
        return Err(Failure::value("out is read-only"));
    }
    Ok(())
}

fn is_writable(array: &Bound<'_, PyUntypedArray>) -> bool {
    // SAFETY: as in `address`.
    unsafe { (*array.as_array_ptr()).fields.flags & NPY_ARRAY_WRITEABLE != 0 }
}

fn check_len(len: usize, descr: &Bound<'_, PyArrayDescr>, shape: &[usize]) -> Result<()> {
    let size = shape.iter().try_fold(descr.itemsize(), |bytes, len| bytes.checked_mul(*len));
    if size == Some(len) {
        return Ok(());
    }
    let shape = tuple_text(shape);
    Err(Failure::value(format!(
        "{len} bytes do not make an array of shape {shape} and dtype {descr}"
    )))
}

/// Returns a shape as Python writes it.
pub(crate) fn tuple_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => {
            let lengths: Vec<_> = many.iter().map(usize::to_string).collect();
            format!("({})", lengths.join(", "))
        }
    }
}
