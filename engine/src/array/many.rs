//! Reads many views as one batch, and reads views ahead.

use std::borrow::Borrow;
use std::iter::FusedIterator;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::{Buffer, Read};

use super::element::to_native;
use super::read::check_size;
use crate::error::count;
use crate::memory::{BufferSizes, ClaimedBuffer, Share};
use crate::prefetch::{
    Done, Limits, Prefetcher, Room, Schedule, UntilError, read_group, stage_group,
};
use crate::{ContiguousMemmap, Element, Engine, Error, Result};

impl Engine {
    /// Reads many views, of any number of files, as one batch, and returns the elements of one view
    /// after the other, each in C order. The elements are in the machine's byte order, whatever the order
    /// in the files. Fails with [`Error::ElementType`] if a view is not of type `T`.
    ///
    /// This helps `uring` most. Views whose axes are in another order than in the file are read after
    /// the others, one by one.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..100).collect::<Vec<u8>>())?;
    /// let engine = Engine::new()?;
    /// let array = engine.open_raw(&path, Kind::U8, &[10, 10], 0)?;
    /// let windows = [array.at(7)?, array.at(0)?, array.at(3)?];
    /// let mut elements = [0u8; 30];
    /// engine.read_many(&windows, &mut elements)?;
    /// assert_eq!((elements[0], elements[10], elements[20]), (70, 0, 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_many<T: Element, V: Borrow<ContiguousMemmap>>(
        &self,
        views: &[V],
        dst: &mut [T],
    ) -> Result<()> {
        for (number, view) in views.iter().enumerate() {
            view.borrow().check_type::<T>().map_err(|error| error.about_view(number))?;
        }
        check_size(total_bytes(views), size_of_val(dst))?;
        T::read_slice(dst, |bytes| self.read_native_many(views, bytes))
    }

    /// Reads the bytes of the views, and turns elements into the machine's byte order.
    fn read_native_many<V: Borrow<ContiguousMemmap>>(
        &self,
        views: &[V],
        bytes: &mut [u8],
    ) -> Result<()> {
        self.read_many_bytes(views, bytes)?;
        let mut rest = bytes;
        for view in views {
            let view = view.borrow();
            let (part, tail) = rest.split_at_mut(view.nbytes());
            to_native(view.dtype(), part);
            rest = tail;
        }
        Ok(())
    }

    /// Like [`read_many`](Self::read_many), into a new vector.
    #[cfg(feature = "async")]
    pub(crate) fn read_many_vec<T: Element>(&self, views: &[ContiguousMemmap]) -> Result<Vec<T>> {
        let len = views.iter().map(ContiguousMemmap::size).fold(0, usize::saturating_add);
        for (number, view) in views.iter().enumerate() {
            view.check_type::<T>().map_err(|error| error.about_view(number))?;
        }
        T::read_vec(len, |bytes| self.read_native_many(views, bytes))
    }

    /// Like [`read_many`](Self::read_many), with the bytes of the files: the views may have elements
    /// of any type. Elements keep the byte order of their file.
    pub fn read_many_bytes<V: Borrow<ContiguousMemmap>>(
        &self,
        views: &[V],
        dst: &mut [u8],
    ) -> Result<()> {
        check_size(total_bytes(views), dst.len())?;
        let mut rest = &mut *dst;
        let mut parts = Vec::with_capacity(views.len());
        for view in views {
            let (part, tail) = rest.split_at_mut(view.borrow().nbytes());
            parts.push(part);
            rest = tail;
        }
        self.read_many_bytes_into(views, &mut parts)
    }

    /// Like [`read_many_bytes`](Self::read_many_bytes), but reads each view into memory of its own.
    pub fn read_many_bytes_into<V: Borrow<ContiguousMemmap>>(
        &self,
        views: &[V],
        dst: &mut [&mut [u8]],
    ) -> Result<()> {
        if views.len() != dst.len() {
            let slices = count(dst.len() as u64, "slice");
            let reason =
                format!("it must have a slice for each of {}", count(views.len() as u64, "view"));
            return Err(Error::invalid_option("dst", slices, reason));
        }
        let mut reads = Vec::with_capacity(views.len());
        for (number, (view, dst)) in views.iter().zip(dst.iter_mut()).enumerate() {
            let view = view.borrow();
            check_size(view.nbytes(), dst.len()).map_err(|error| error.about_view(number))?;
            self.check_own(view, number)?;
            if view.is_one_read() {
                reads.push(Read::new(view.file(), view.offset(), dst));
            }
        }
        let read = self.backend().read_batch(&mut reads);
        read.map_err(|error| read_error(views, error))?;
        drop(reads);
        // Views with their axes in another order go through bounded memory, one by one.
        for (view, dst) in views.iter().zip(dst.iter_mut()) {
            let view = view.borrow();
            if !view.is_one_read() {
                view.read_bytes_into(dst)?;
            }
        }
        Ok(())
    }

    fn check_own(&self, view: &ContiguousMemmap, number: usize) -> Result<()> {
        if self.is_same(view.engine()) {
            return Ok(());
        }
        let value = format!("{}, view {number}", view.path().display());
        let reason = "another engine opened it; read it with that engine";
        Err(Error::invalid_option("views", value, reason))
    }

    /// Reads views one after the other into buffers of the pool, on a thread that is up to
    /// `window_bytes` ahead of the caller. 0 reads each view when it is requested.
    ///
    /// A buffer holds the bytes of the file, like [`ContiguousMemmap::read_buffer`]. The iteration
    /// ends after an error.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..100).collect::<Vec<u8>>())?;
    /// let engine = Engine::new()?;
    /// let array = engine.open_raw(&path, Kind::U8, &[10, 10], 0)?;
    /// for row in engine.read_ahead(array.rows()?.rev(), 1 << 20)? {
    ///     println!("{:?}", &row?[..]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_ahead(
        &self,
        views: impl IntoIterator<Item = ContiguousMemmap>,
        window_bytes: usize,
    ) -> Result<ViewReader> {
        let views: Arc<[ContiguousMemmap]> = views.into_iter().collect();
        for (number, view) in views.iter().enumerate() {
            self.check_own(view, number)?;
        }
        let largest_bytes = views.iter().map(buffer_bytes).max().unwrap_or(0);
        let limit_bytes = self.pool().limit_bytes();
        if largest_bytes > limit_bytes {
            let reason = format!(
                "the engine has {limit_bytes} bytes of buffers (about half of its memory limit); read less \
                 at once, or raise memory_limit_bytes"
            );
            let value = format!("a view of {largest_bytes} bytes");
            return Err(Error::invalid_option("views", value, reason));
        }
        let share = self.reserve().share(largest_bytes, BufferSizes::Varying);
        let limits = Limits { window_bytes, patience: self.memory_patience() };
        let schedule = ViewSchedule { engine: self.clone(), views, at: 0, share };
        Ok(ViewReader(UntilError::new(Prefetcher::new(schedule, limits))))
    }
}

/// An iterator over views that a thread reads ahead; see [`Engine::read_ahead`].
pub struct ViewReader(UntilError<ViewSchedule>);

impl Iterator for ViewReader {
    type Item = Result<Buffer>;

    fn next(&mut self) -> Option<Result<Buffer>> {
        self.0.next().map(|outcome| outcome.map(ClaimedBuffer::into_buffer))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.position().map_or(0, |schedule| schedule.views.len() - schedule.at);
        (0, Some(left))
    }
}

impl FusedIterator for ViewReader {}

#[cfg(feature = "async")]
impl crate::async_engine::Polled for ViewReader {
    type Batch = Buffer;

    fn poll_batch(&mut self, waker: &std::task::Waker) -> std::task::Poll<Option<Result<Buffer>>> {
        let outcome = self.0.poll_next(waker);
        outcome.map(|outcome| outcome.map(|outcome| outcome.map(ClaimedBuffer::into_buffer)))
    }
}

impl std::fmt::Debug for ViewReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewReader").field("left", &self.size_hint().1).finish_non_exhaustive()
    }
}

/// The views that are still to be read.
#[derive(Clone)]
struct ViewSchedule {
    engine: Engine,
    views: Arc<[ContiguousMemmap]>,
    at: usize,
    share: Arc<Share>,
}

impl ViewSchedule {
    /// Takes memory for the next view, and for later ones that are read with it.
    fn stage(&self, room: Room) -> Result<Vec<ClaimedBuffer>> {
        let mut staged = Vec::new();
        let views = self.views[self.at..].iter().map(|view| (view, buffer_bytes(view)));
        stage_group(views, room, &mut staged, |view, need| {
            let taken = self.share.take(buffer_bytes(view), need);
            taken.map_err(|error| Error::reading(view.path(), None, "a view", error))
        })?;
        Ok(staged)
    }

    /// Reads the next views, one into each buffer.
    fn fill(&self, staged: &mut [ClaimedBuffer]) -> Result<()> {
        let views = &self.views[self.at..self.at + staged.len()];
        let mut parts: Vec<&mut [u8]> = Vec::with_capacity(staged.len());
        for (buffer, view) in staged.iter_mut().zip(views) {
            parts.push(&mut buffer[..view.nbytes()]);
        }
        self.engine.read_many_bytes_into(views, &mut parts)
    }

    /// Delivers the next view, which was read into `buffer`.
    fn hand_out(&mut self, mut buffer: ClaimedBuffer, done: &mut Vec<Done<ClaimedBuffer>>) {
        let view = &self.views[self.at];
        buffer.narrow(0..view.nbytes());
        done.push(Done { item: buffer, bytes: buffer_bytes(view) });
        self.at += 1;
    }
}

impl Schedule for ViewSchedule {
    type Item = ClaimedBuffer;

    fn next_bytes(&self) -> Option<usize> {
        self.views.get(self.at).map(buffer_bytes)
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<Self::Item>>) -> Result<()> {
        let mut staged = self.stage(room)?;
        read_group(staged.len(), |count| {
            self.fill(&mut staged[..count])?;
            staged.drain(..count).for_each(|buffer| self.hand_out(buffer, done));
            Ok(())
        })
    }

    fn pass(&mut self, _item: &Self::Item) {
        self.at += 1;
    }

    fn path(&self) -> &Path {
        self.views.get(self.at).map_or(Path::new(""), ContiguousMemmap::path)
    }
}

/// Returns the size of the buffer for a view that is read ahead, in bytes.
fn buffer_bytes(view: &ContiguousMemmap) -> usize {
    view.nbytes().max(1)
}

fn total_bytes<V: Borrow<ContiguousMemmap>>(views: &[V]) -> usize {
    views.iter().map(|view| view.borrow().nbytes()).fold(0, usize::saturating_add)
}

/// A backend's error about one of the views. The index in it counts all views of the caller.
fn read_error<V: Borrow<ContiguousMemmap>>(views: &[V], error: ringmain_backends::Error) -> Error {
    let mut batch = (0..views.len()).filter(|number| views[*number].borrow().is_one_read());
    let error = match error.index().and_then(|index| batch.nth(index)) {
        Some(number) => error.with_index(number),
        None => error,
    };
    let first = views.first().map(|view| view.borrow().path());
    match error.path().or(first).map(Path::to_owned) {
        Some(path) => Error::backend(&path, error),
        None => error.into(),
    }
}
