//! Reading a view: the only part that touches the file.

use ringmain_backends::{Buffer, Read, ReadBackendExt};

use super::element::to_native;
use super::scatter::Scatter;
use crate::memory::vec_of;
use crate::{ContiguousMemmap, DType, Element, Engine, Error, Result};

impl ContiguousMemmap {
    /// Reads all elements, in C order and with the file's bytes, into memory of just that size.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [1, 2, 3, 4, 5, 6])?;
    /// let array = Engine::new()?.open_raw(&path, Kind::U8.into(), &[2, 3], 0)?;
    /// let mut bytes = [0; 6];
    /// array.t().read_into(&mut bytes)?;
    /// assert_eq!(bytes, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_into(&self, dst: &mut [u8]) -> Result<()> {
        self.read_into_while(dst, || true).map(|_| ())
    }

    /// As [`read_into`](Self::read_into), but now and then `go_on` is asked. If it says no, the rest
    /// of `dst` is left as it is, and `false` is returned. Elements that lie in the file in C order
    /// are one read, before which alone it is asked.
    pub fn read_into_while(&self, dst: &mut [u8], mut go_on: impl FnMut() -> bool) -> Result<bool> {
        check_size(self.nbytes(), dst.len())?;
        let Some((offset, len)) = self.layout().byte_range() else {
            return self.read_selection_into_while(&[], dst, go_on);
        };
        if self.layout().is_c_order() || len == 0 {
            if !go_on() {
                return Ok(false);
            }
            self.engine().backend().read_exact_at(self.file(), offset, dst)?;
            return Ok(true);
        }
        let mut scatter = Scatter::new(self.layout());
        self.read_in_parts(offset, len, |part| {
            scatter.put(part, dst);
            Ok(go_on())
        })
    }

    /// Reads the elements into a buffer of the engine's pool, which goes back to it when dropped:
    /// the fastest way, as such memory is aligned for the device and recycled. The buffer begins at a
    /// multiple of the elements' size.
    pub fn read_buffer(&self) -> Result<Buffer> {
        let len = self.nbytes();
        if self.layout().is_c_order() {
            let (offset, engine, align) = (self.offset(), self.engine(), self.itemsize());
            let read =
                engine.backend().read_elements(engine.pool(), self.file(), offset, len, align);
            return read.map_err(|error| Error::backend(self.file().path(), error));
        }
        let taken = self.engine().pool().take(len);
        let mut buffer = taken.map_err(|error| Error::backend(self.file().path(), error))?;
        self.read_into(&mut buffer)?;
        Ok(buffer)
    }

    /// Reads the elements as they are; [`Error::ElementType`] if `T` is another type.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0, 1, 0, 2])?;
    /// let array = Engine::new()?.open_raw(&path, ">u2".parse()?, &[2], 0)?;
    /// assert_eq!(array.read_vec::<u16>()?, [1, 2]);
    /// assert_eq!(array.read_as::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_type::<T>()?;
        T::read_vec(self.size(), |bytes| {
            self.read_into(bytes)?;
            to_native(self.dtype(), bytes);
            Ok(())
        })
    }

    /// Reads the elements and converts them, as Rust's `as` does; complex numbers have no real
    /// counterpart. Memory beyond the result is bounded, whatever the size, unless the axes are in
    /// another order than in the file: then it is as large as the view.
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        if T::is(self.dtype().kind) {
            return self.read_vec();
        }
        // Whether there is a conversion depends on the types alone.
        if T::convert(self.dtype().kind, &[0; 16][..self.itemsize()]).is_none() {
            return Err(no_conversion(self.dtype(), T::NAME));
        }
        let mut elements = Vec::new();
        let bytes = self.size().saturating_mul(size_of::<T>());
        elements.try_reserve_exact(self.size()).map_err(|_| Error::OutOfMemory { bytes })?;
        if !self.layout().is_c_order() {
            // The order of the elements is not the file's, so they are needed all at once.
            let mut stored = vec_of(self.nbytes())?;
            self.read_into(&mut stored)?;
            convert_into(self.dtype(), &mut stored, &mut elements)?;
            return Ok(elements);
        }
        self.read_in_parts(self.offset(), self.nbytes(), |part| {
            convert_into(self.dtype(), part, &mut elements)?;
            Ok(true)
        })?;
        Ok(elements)
    }

    /// Reads the one element of a view without axes, or of one with a single element.
    pub fn read_scalar<T: Element>(&self) -> Result<T> {
        let reason = || format!("a view of shape {:?} is not one element", self.shape());
        if self.size() != 1 {
            return Err(Error::Shape { reason: reason() });
        }
        self.read_vec::<T>()?.pop().ok_or_else(|| Error::Shape { reason: reason() })
    }

    /// Reads the elements into an array of the same shape.
    #[cfg(feature = "ndarray")]
    pub fn to_ndarray<T: Element>(&self) -> Result<ndarray::ArrayD<T>> {
        let elements = self.read_vec::<T>()?;
        ndarray::ArrayD::from_shape_vec(self.shape(), elements)
            .map_err(|error| Error::Shape { reason: error.to_string() })
    }

    pub(crate) fn check_type<T: Element>(&self) -> Result<()> {
        if T::is(self.dtype().kind) {
            return Ok(());
        }
        let reason = format!("they are not {}; `read_as` converts", T::NAME);
        Err(Error::ElementType { item: None, stored: self.dtype().to_string(), reason })
    }

    /// Reads a range of the file once, as much at a time as there is scratch memory: always whole
    /// elements. Stops before the end when `take` says so.
    fn read_in_parts(
        &self,
        offset: u64,
        len: usize,
        mut take: impl FnMut(&mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let mut scratch = self.engine().scratch(len)?;
        let part_max = scratch.len().max(1); // there is none for a range of nothing
        for done in (0..len).step_by(part_max) {
            let part = &mut scratch[..part_max.min(len - done)];
            self.engine().backend().read_exact_at(self.file(), offset + done as u64, part)?;
            if !take(part)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Engine {
    /// Reads many views, of any number of files, as one batch: their elements one view after the
    /// other, each in C order. This is where io_uring earns its keep. Views whose axes are in
    /// another order than the file's are read after the others, one by one.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..100).collect::<Vec<u8>>())?;
    /// let engine = Engine::new()?;
    /// let array = engine.open_raw(&path, Kind::U8.into(), &[10, 10], 0)?;
    /// let windows = [array.at(7)?, array.at(0)?, array.at(3)?];
    /// let mut bytes = [0; 30];
    /// engine.read_many(&windows, &mut bytes)?;
    /// assert_eq!((bytes[0], bytes[10], bytes[20]), (70, 0, 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_many(&self, views: &[ContiguousMemmap], dst: &mut [u8]) -> Result<()> {
        let needed = views.iter().map(ContiguousMemmap::nbytes).fold(0, usize::saturating_add);
        check_size(needed, dst.len())?;
        let mut rest = &mut *dst;
        let mut parts = Vec::with_capacity(views.len());
        for view in views {
            let (part, tail) = rest.split_at_mut(view.nbytes());
            parts.push(part);
            rest = tail;
        }
        self.read_many_into(views, &mut parts)
    }

    /// As [`read_many`](Self::read_many), each view into memory of its own.
    pub fn read_many_into(&self, views: &[ContiguousMemmap], dst: &mut [&mut [u8]]) -> Result<()> {
        if views.len() != dst.len() {
            return Err(Error::BufferSize { item: None, needed: views.len(), given: dst.len() });
        }
        let mut reads = Vec::with_capacity(views.len());
        for (view, dst) in views.iter().zip(dst.iter_mut()) {
            check_size(view.nbytes(), dst.len())?;
            if !self.is_same(view.engine()) {
                let reason = "a view of another engine is among those to be read".to_owned();
                return Err(Error::InvalidIndex { reason });
            }
            if view.layout().is_c_order() || view.is_empty() {
                reads.push(Read::new(view.file(), view.offset(), dst));
            }
        }
        self.backend().read_batch(&mut reads)?;
        drop(reads);
        // Those with their axes in another order pass through bounded memory, one by one.
        for (view, dst) in views.iter().zip(dst.iter_mut()) {
            if !view.layout().is_c_order() && !view.is_empty() {
                view.read_into(dst)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn check_size(needed: usize, given: usize) -> Result<()> {
    if needed == given { Ok(()) } else { Err(Error::BufferSize { item: None, needed, given }) }
}

/// Converts stored elements, appending them.
fn convert_into<T: Element>(dtype: DType, stored: &mut [u8], elements: &mut Vec<T>) -> Result<()> {
    to_native(dtype, stored);
    for bytes in stored.chunks_exact(dtype.itemsize()) {
        let converted = T::convert(dtype.kind, bytes);
        elements.push(converted.ok_or_else(|| no_conversion(dtype, T::NAME))?);
    }
    Ok(())
}

/// The next of all tuples below `shape`, the last place counting fastest; the first after the
/// last.
pub(crate) fn count_up(counter: &mut [usize], shape: &[usize]) {
    for axis in (0..counter.len()).rev() {
        counter[axis] += 1;
        if counter[axis] < shape[axis] {
            return;
        }
        counter[axis] = 0;
    }
}

fn no_conversion(stored: DType, asked: &str) -> Error {
    let reason = format!("they cannot be converted to {asked}");
    Error::ElementType { item: None, stored: stored.to_string(), reason }
}
