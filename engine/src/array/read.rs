//! Reads a view: only these methods touch the file.
//!
//! Methods with `bytes` in their name, and [`read_buffer`](ContiguousMemmap::read_buffer), return the
//! bytes of the file as they are. Methods with a type parameter return elements in the byte order of the
//! machine.

use ringmain_backends::{Alignment, Buffer, ReadBackendExt};

use super::element::to_native;
use super::scatter::Scatter;
use crate::memory::zeroed;
use crate::{ContiguousMemmap, Element, Error, Result};

impl ContiguousMemmap {
    /// Reads all elements in C order into `dst`, which must have exactly their size. They keep the byte
    /// order of the file.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [1, 2, 3, 4, 5, 6])?;
    /// let array = Engine::new()?.open_raw(&path, Kind::U8, &[2, 3], 0)?;
    /// let mut bytes = [0; 6];
    /// array.t().read_bytes_into(&mut bytes)?;
    /// assert_eq!(bytes, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_bytes_into(&self, dst: &mut [u8]) -> Result<()> {
        if self.is_one_read() {
            check_size(self.nbytes(), dst.len())?;
            let read = self.engine().backend().read_exact_at(self.file(), self.offset(), dst);
            return read.map_err(|error| Error::backend(self.path(), error));
        }
        self.read_bytes_into_while(dst, || true).map(|_| ())
    }

    /// Like [`read_bytes_into`](Self::read_bytes_into), but calls `go_on` from time to time, at least
    /// after every 32 MiB. If it returns `false`, the rest of `dst` is unchanged, and the result is
    /// `false`.
    pub fn read_bytes_into_while(
        &self,
        dst: &mut [u8],
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        check_size(self.nbytes(), dst.len())?;
        if self.is_one_read() {
            let (backend, file) = (self.engine().backend(), self.file());
            let read = backend.read_exact_at_while(file, self.offset(), dst, go_on);
            return read.map_err(|error| Error::backend(self.path(), error));
        }
        let Some((offset, len)) = self.layout().byte_range() else {
            return self.read_selection_bytes_into_while(&[], dst, go_on);
        };
        let mut scatter = Scatter::new(self.layout());
        self.read_in_parts(offset, len, |part| {
            scatter.put(part, dst);
            Ok(go_on())
        })
    }

    /// Reads the elements into a buffer of the engine's pool, in the byte order of the file. This is the
    /// fastest way, because such memory is aligned for the device and reused. Dropping the buffer returns
    /// it to the pool. On every backend, its address is a multiple of the size of an element.
    /// [`read_vec`](Self::read_vec) and [`read_into`](Self::read_into) convert to the byte order of the
    /// machine.
    ///
    /// If other buffers hold all of the pool, this waits until one is dropped, and fails with
    /// [`Error::MemorySpent`] after [`memory_patience`](crate::EngineBuilder::memory_patience): the
    /// waiting thread may itself hold them.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0; 41])?;
    /// let array = Engine::new()?.open_raw(&path, Kind::F32, &[10], 1)?; // at an odd offset
    /// let buffer = array.read_buffer()?;
    /// assert_eq!(bytemuck::cast_slice::<u8, f32>(&buffer).len(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_buffer(&self) -> Result<Buffer> {
        let (len, pool) = (self.nbytes(), self.engine().pool());
        let failed = |error| Error::backend(self.path(), error);
        if self.layout().is_c_order() {
            let (backend, align) = (self.engine().backend(), self.itemsize());
            let read = backend.read_elements(pool, self.file(), self.offset(), len, align);
            return read.map_err(failed);
        }
        let mut buffer = pool.take(len).map_err(failed)?;
        self.read_bytes_into(&mut buffer)?;
        Ok(buffer)
    }

    /// Like [`read_buffer`](Self::read_buffer), but the caller chooses the memory and can end the read.
    /// `take` must return a buffer of at least the given number of bytes. The address of the elements is
    /// a multiple of `element_align`, a power of two up to 4096. If `go_on` ends the read, as in
    /// [`read_bytes_into_while`](Self::read_bytes_into_while), the result is `None`.
    ///
    /// ```
    /// use ringmain::{Buffer, Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [7; 41])?;
    /// let array = Engine::new()?.open_raw(&path, Kind::F32, &[10], 1)?;
    /// // Does not count against the engine's limit.
    /// let kept = array.read_buffer_while(4, Buffer::unpooled, || true)?;
    /// assert_eq!(kept.as_deref(), Some(&[7; 40][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_buffer_while(
        &self,
        element_align: usize,
        take: impl FnOnce(usize) -> std::result::Result<Buffer, ringmain_backends::Error>,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<Buffer>> {
        let failed = |error| Error::backend(self.path(), error);
        if self.is_one_read() {
            let (backend, span) = (self.engine().backend(), self.byte_span());
            let read = backend.read_elements_while(self.file(), span, element_align, take, go_on);
            return read.map_err(failed);
        }
        let mut buffer = take(self.nbytes()).map_err(failed)?;
        buffer.narrow(0..self.nbytes());
        Ok(self.read_bytes_into_while(&mut buffer, go_on)?.then_some(buffer))
    }

    /// Reads the elements in C order and the machine's byte order, whatever the order in the file. Fails
    /// with [`Error::ElementType`] if they are not of type `T`.
    ///
    /// ```
    /// use ringmain::{DType, Engine};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0, 1, 0, 2])?;
    /// let array = Engine::new()?.open_raw(&path, ">u2".parse::<DType>()?, &[2], 0)?;
    /// assert_eq!(array.read_vec::<u16>()?, [1, 2]);
    /// assert_eq!(array.read_as::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_type::<T>()?;
        T::read_vec(self.size(), |bytes| self.read_native_into(bytes))
    }

    /// Reads the elements in C order into the caller's memory. They are in the machine's byte order,
    /// whatever the order in the file; [`read_bytes_into`](Self::read_bytes_into) keeps the file's.
    /// Fails with [`Error::ElementType`] if they are not of type `T`.
    ///
    /// ```
    /// use ringmain::{DType, Engine};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0, 1, 0, 2])?;
    /// let array = Engine::new()?.open_raw(&path, ">u2".parse::<DType>()?, &[2], 0)?;
    /// let mut elements = [0u16; 2];
    /// array.read_into(&mut elements)?;
    /// assert_eq!(elements, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_into<T: Element>(&self, dst: &mut [T]) -> Result<()> {
        self.check_type::<T>()?;
        check_size(self.nbytes(), size_of_val(dst))?;
        T::read_slice(dst, |bytes| self.read_native_into(bytes))
    }

    fn read_native_into(&self, bytes: &mut [u8]) -> Result<()> {
        self.read_bytes_into(bytes)?;
        to_native(self.dtype(), bytes);
        Ok(())
    }

    /// Reads the elements and converts them as Rust's `as` does; a complex number cannot become a
    /// real one. The memory besides the result is bounded, unless the axes are in another order than
    /// in the file: then it is as large as the view.
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        if T::is(self.dtype().kind) {
            return self.read_vec();
        }
        // The types alone determine whether there is a conversion.
        if T::convert(self.dtype().kind, &[0; 16][..self.itemsize()]).is_none() {
            return Err(self.no_conversion(T::NAME));
        }
        let mut elements = Vec::new();
        let bytes = self.size().saturating_mul(size_of::<T>());
        elements.try_reserve_exact(self.size()).map_err(|_| Error::OutOfMemory { bytes })?;
        if !self.layout().is_c_order() {
            // The elements are not in the order of the file, so all of them are needed at once.
            let mut stored = zeroed::<u8>(self.nbytes())?;
            self.read_bytes_into(&mut stored)?;
            self.convert_into(&mut stored, &mut elements)?;
            return Ok(elements);
        }
        self.read_in_parts(self.offset(), self.nbytes(), |part| {
            self.convert_into(part, &mut elements)?;
            Ok(true)
        })?;
        Ok(elements)
    }

    /// Reads the element of a view that has exactly one, in the machine's byte order.
    pub fn read_scalar<T: Element>(&self) -> Result<T> {
        let reason = || format!("a view of shape {:?} is not one element", self.shape());
        if self.size() != 1 {
            return Err(Error::Shape { reason: reason() });
        }
        self.read_vec::<T>()?.pop().ok_or_else(|| Error::Shape { reason: reason() })
    }

    /// Reads the elements into a new array of the same shape, in the machine's byte order.
    #[cfg(feature = "ndarray")]
    pub fn to_ndarray<T: Element>(&self) -> Result<ndarray::ArrayD<T>> {
        let elements = self.read_vec::<T>()?;
        ndarray::ArrayD::from_shape_vec(self.shape(), elements)
            .map_err(|error| Error::Shape { reason: error.to_string() })
    }

    /// Reads the elements into an array of the same shape, in the machine's byte order.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [1, 2, 3, 4])?;
    /// let array = Engine::new()?.open_raw(&path, Kind::U8, &[2, 2], 0)?;
    /// let mut batch = ndarray::Array3::<u8>::zeros((3, 2, 2));
    /// array.read_into_ndarray(batch.index_axis_mut(ndarray::Axis(0), 1))?;
    /// assert_eq!(batch[[1, 1, 0]], 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "ndarray")]
    pub fn read_into_ndarray<T: Element, D: ndarray::Dimension>(
        &self,
        mut dst: ndarray::ArrayViewMut<'_, T, D>,
    ) -> Result<()> {
        if dst.shape() != self.shape() {
            let (view, array) = (self.shape(), dst.shape());
            let reason =
                format!("a view of shape {view:?} does not fit an array of shape {array:?}");
            return Err(Error::Shape { reason });
        }
        if let Some(elements) = dst.as_slice_mut() {
            return self.read_into(elements);
        }
        let elements = self.read_vec::<T>()?;
        dst.iter_mut().zip(elements).for_each(|(dst, element)| *dst = element);
        Ok(())
    }

    /// Tells the backend that the view will be read soon. This is a hint: a backend that uses the
    /// page cache starts to read, others ignore it.
    pub fn prefetch(&self) -> Result<()> {
        Ok(self.engine().backend().prefetch(self.file(), self.byte_span())?)
    }

    /// Tells the backend that the view is not needed for now. This is a hint: a mapping releases
    /// its pages, and a backend that uses the page cache drops what it read.
    pub fn release(&self) -> Result<()> {
        Ok(self.engine().backend().release(self.file(), self.byte_span())?)
    }

    pub(crate) fn check_type<T: Element>(&self) -> Result<()> {
        if T::is(self.dtype().kind) {
            return Ok(());
        }
        Err(self.wrong_type(format!("they are not {}; `read_as` converts", T::NAME)))
    }

    fn wrong_type(&self, reason: String) -> Error {
        let (path, stored) = (Some(self.path().to_owned()), self.dtype().to_string());
        Error::ElementType { path, item: None, stored, reason }
    }

    fn no_conversion(&self, asked: &str) -> Error {
        self.wrong_type(format!("they cannot be converted to {asked}"))
    }

    /// Converts stored elements and appends them.
    fn convert_into<T: Element>(&self, stored: &mut [u8], elements: &mut Vec<T>) -> Result<()> {
        to_native(self.dtype(), stored);
        for bytes in stored.chunks_exact(self.itemsize()) {
            let converted = T::convert(self.dtype().kind, bytes);
            elements.push(converted.ok_or_else(|| self.no_conversion(T::NAME))?);
        }
        Ok(())
    }

    /// Returns whether the elements lie in the file in C order, one after the other.
    pub(crate) fn is_one_read(&self) -> bool {
        self.layout().is_c_order() || self.is_empty()
    }

    /// Reads a range of the file once, as much at a time as fits in scratch memory, always whole
    /// elements. The parts begin where the device can write to, if there is enough memory for that. It
    /// stops early if `take` returns `false`.
    fn read_in_parts(
        &self,
        offset: u64,
        len: usize,
        mut take: impl FnMut(&mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let alignment = self.file().alignment();
        let wanted_bytes = len.saturating_add(alignment.lead_bytes_max());
        let mut scratch = self.engine().scratch(wanted_bytes)?;
        let is_large = scratch.len() >= wanted_bytes.min(2 * alignment.block());
        let alignment = if is_large { alignment } else { Alignment::NONE };
        let part_max = scratch.len() - alignment.lead_bytes_max();
        let part_max = part_max / self.itemsize() * self.itemsize();
        for done in (0..len).step_by(part_max.max(1)) {
            let part_offset = offset + done as u64;
            let start = alignment.position(0, part_offset);
            let part = &mut scratch[start..][..part_max.min(len - done)];
            let read = self.engine().backend().read_exact_at(self.file(), part_offset, part);
            read.map_err(|error| Error::backend(self.path(), error))?;
            if !take(part)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

pub(crate) fn check_size(needed: usize, given: usize) -> Result<()> {
    if needed == given { Ok(()) } else { Err(Error::BufferSize { item: None, needed, given }) }
}

/// Advances `counter` to the next tuple below `shape`, the last place first; after the last tuple
/// it returns to the first.
pub(crate) fn count_up(counter: &mut [usize], shape: &[usize]) {
    for axis in (0..counter.len()).rev() {
        counter[axis] += 1;
        if counter[axis] < shape[axis] {
            return;
        }
        counter[axis] = 0;
    }
}
