//! NumPy arrays over memory that the engine reads into.
//!
//! Two kinds of memory. Small arrays have NumPy's own, which its allocator recycles. Large ones
//! show a [`Buffer`]: the array's base is a Python object that owns it, so that it goes back to the
//! pool when the last array or view of it is gone. Where the pool is spent, because the caller
//! keeps what was read, the memory is the array's own: what a program holds is not the engine's to
//! limit, and waiting for it would wait for ever.

use std::ptr;

use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::Borrowed;
use pyo3::prelude::*;
use ringmain::backends::Error::PoolExhausted;
use ringmain::{Buffer, BufferPool};

use crate::error::{Failure, Result};

/// From this size on fresh memory would be mapped and zeroed by the kernel for each array, as
/// malloc does not keep it: the pool does.
pub(crate) const POOLED_BYTES_MIN: usize = 64 << 10;

/// Owns the memory of arrays.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Memory")]
struct Memory {
    _buffer: Buffer,
}

/// Memory for `len` bytes: of the pool while it has some, else of its own.
pub(crate) fn take(pool: &BufferPool, len: usize) -> Result<Buffer> {
    match pool.try_take(len) {
        Err(PoolExhausted { .. }) => Ok(Buffer::unpooled(len)?),
        taken => Ok(taken?),
    }
}

/// An array that owns the buffer, in C order. Its bytes are not copied.
pub(crate) fn from_buffer<'py>(
    mut buffer: Buffer,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    check_len(buffer.len(), descr, shape)?;
    let data = buffer.as_mut_ptr();
    let owner = Bound::new(py, Memory { _buffer: buffer })?;
    // SAFETY: `data` is valid for as many bytes as the array has (just checked) for as long as
    // `owner` lives, since a buffer's memory does not move with it; nothing else refers to it.
    unsafe { over(owner.into_any(), data, descr, shape) }
}

/// An array over memory that `owner` keeps, in C order.
///
/// # Safety
/// `data` is valid for as many bytes as such an array has for as long as `owner` lives, and nothing
/// but arrays refers to them meanwhile.
pub(crate) unsafe fn over<'py>(
    owner: Bound<'py, PyAny>,
    data: *mut u8,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    // SAFETY: the caller's promise.
    let array = unsafe { new_array(descr, shape, data.cast()) }?;
    // SAFETY: both are live objects; the call takes over the reference to `owner`.
    let failed = unsafe {
        PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_array_ptr(), owner.into_ptr()) != 0
    };
    if failed { Err(PyErr::fetch(py).into()) } else { Ok(array) }
}

/// An array with NumPy's own memory, in C order, not initialised.
pub(crate) fn empty<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    // SAFETY: without data NumPy allocates it.
    unsafe { new_array(descr, shape, ptr::null_mut()) }
}

/// An array to be filled: a large one over memory of the pool, a small one over NumPy's.
pub(crate) fn new<'py>(
    pool: &BufferPool,
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> Result<Bound<'py, PyUntypedArray>> {
    let bytes = shape.iter().try_fold(descr.itemsize(), |bytes, len| bytes.checked_mul(*len));
    match bytes {
        Some(bytes) if bytes >= POOLED_BYTES_MIN => from_buffer(take(pool, bytes)?, descr, shape),
        // More than can be counted is NumPy's to refuse.
        _ => empty(descr, shape),
    }
}

/// # Safety
/// `data` is null, or valid for the bytes of such an array for as long as it lives.
unsafe fn new_array<'py>(
    descr: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
    data: *mut std::ffi::c_void,
) -> Result<Bound<'py, PyUntypedArray>> {
    let py = descr.py();
    // Lengths that are no `npy_intp` would make more bytes than `check_len` or NumPy let pass.
    let dims = shape.as_ptr().cast_mut().cast::<npy_intp>();
    let flags = if data.is_null() { 0 } else { NPY_ARRAY_WRITEABLE };
    // SAFETY: the type object and the descriptor are NumPy's, and the call takes over one reference
    // to the latter; `dims` has as many lengths as are announced, and is only read; strides are
    // left to NumPy; that `data` may be used is the caller's promise.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, npyffi::NpyTypes::PyArray_Type),
            descr.clone().into_dtype_ptr(),
            shape.len() as i32, // 64 at most
            dims,
            ptr::null_mut(),
            data,
            flags,
            ptr::null_mut(),
        );
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}

/// The bytes of an array that we have just made, or whose owner has given it to us to fill.
///
/// # Safety
/// The array is in C order without gaps and writable, lives for `'a`, and nothing else uses its
/// elements meanwhile: with the interpreter lock released that is the caller's program, which
/// must not touch an array that it has passed as `out` to another thread. As in NumPy, a program
/// that does sees old or new bytes.
///
/// The bytes of a new array may never have been written. They are any bytes, as the allocator has
/// handed them over through NumPy, which the compiler cannot see into; and they are only written
/// to, until all of them are.
#[allow(clippy::mut_from_ref)] // what `# Safety` is about
pub(crate) unsafe fn bytes_mut<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a mut [u8] {
    let len = nbytes(array);
    if len == 0 {
        return &mut [];
    }
    // SAFETY: a contiguous array has that many bytes from its data pointer on; the rest is the
    // caller's promise.
    unsafe { std::slice::from_raw_parts_mut((*array.as_array_ptr()).fields.data.cast(), len) }
}

/// The first byte of an array.
pub(crate) fn address(array: &Bound<'_, PyUntypedArray>) -> usize {
    // SAFETY: the object is alive and its layout NumPy's.
    unsafe { (*array.as_array_ptr()).fields.data.addr() }
}

/// The bytes of all elements.
pub(crate) fn nbytes(array: &Bound<'_, PyUntypedArray>) -> usize {
    array.len() * array.dtype().itemsize()
}

/// The argument `out`: an array, or a tensor in the memory of the host.
pub(crate) struct Out<'py> {
    /// An array over its memory.
    pub(crate) array: Bound<'py, PyUntypedArray>,
    /// The caller's own object, which is returned.
    pub(crate) given: Bound<'py, PyAny>,
}

impl<'py> FromPyObject<'_, 'py> for Out<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let given = given.to_owned();
        if let Ok(array) = given.cast::<PyUntypedArray>() {
            return Ok(Self { array: array.clone(), given });
        }
        let array = given.py().import("ringmain._tensors")?.call_method1("memory_of", (&given,))?;
        Ok(Self { array: array.cast_into().map_err(PyErr::from)?, given })
    }
}

/// Refuses an `out` that cannot take elements of this type and shape as they come.
pub(crate) fn check_out(
    out: &Bound<'_, PyUntypedArray>,
    descr: &Bound<'_, PyArrayDescr>,
    shape: &[usize],
) -> Result<()> {
    if !out.dtype().is_equiv_to(descr) {
        let given = out.dtype();
        return Err(Failure::type_(format!("out has dtype {given}, and {descr} is to be read")));
    }
    if out.shape() != shape {
        return Err(Failure::value(format!(
            "out has shape {}, and {} is to be read",
            tuple_text(out.shape()),
            tuple_text(shape)
        )));
    }
    if !out.is_c_contiguous() {
        return Err(Failure::value("out must be C-contiguous: the elements are read in order"));
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
    Err(Failure::value(format!("{len} bytes are no array of shape {shape} and dtype {descr}")))
}

/// A shape as Python writes it.
pub(crate) fn tuple_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => {
            let lengths: Vec<_> = many.iter().map(usize::to_string).collect();
            format!("({})", lengths.join(", "))
        }
    }
}
