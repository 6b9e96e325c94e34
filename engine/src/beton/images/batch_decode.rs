//! Decodes the images of a batch with several threads.

use std::error::Error as StdError;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::thread;

use super::ImageForm;
use super::decoder::{self, DecoderState, Failed};
use super::threads::for_each;
use crate::Result;
use crate::beton::{Batch, Error, Image};

/// The limit at which Pillow refuses an image: two times its `MAX_IMAGE_PIXELS`.
const PIXELS_MAX_DEFAULT: u64 = 178_956_970;

/// Changes the images of a batch in place.
type Transform =
    dyn Fn(&mut [u8], &[u64]) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync;

/// Decodes the images of batches with several threads. It reuses its decoders and their memory for each batch.
///
/// The bytes do not depend on the number of threads. A JPEG is refused, with an error that names the sample and the
/// field, if it is malformed or truncated, if its size is not that of the metadata, if its colours are CMYK, if its
/// levels do not have 8 bits, or if it has more pixels than the limit. Size, colours, levels and pixels are checked
/// before memory is allocated.
///
/// ```
/// use ringmain::Engine;
/// use ringmain::beton::{BetonReader, BetonWriter, Field, FieldKind, ImageDecoder, ImageForm};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.beton");
/// let fields = [Field::new("image", FieldKind::RgbImage)?];
/// BetonWriter::new(fields).write_indexed(&path, 2, |id, sample| {
///     let (height, width) = ([3, 8][id as usize], 4);
///     sample.image_raw(width, height, &vec![9; usize::from(width * height * 3)])?;
///     Ok(())
/// })?;
/// let batch = BetonReader::open(&Engine::new()?, &path)?.read_batch(&[1, 0])?;
/// let form = ImageForm::new(2, 2)?;
/// let mut images = vec![0; batch.len() * form.image_bytes()];
/// let epoch = 0; // random crops depend on it
/// ImageDecoder::new().decode(&batch, 0, &form, epoch, &mut images)?;
/// assert_eq!(images, [9; 2 * 2 * 2 * 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ImageDecoder {
    threads: NonZeroUsize,
    pixels_max: u64,
    transform: Option<Arc<Transform>>,
    /// The states that no thread uses. Only `try_lock` is used: another thread could hold the lock while the process
    /// forks.
    idle: Arc<Mutex<Vec<DecoderState>>>,
}

impl ImageDecoder {
    /// Returns a decoder that uses a thread for each processor.
    #[must_use]
    pub fn new() -> Self {
        let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { threads, pixels_max: PIXELS_MAX_DEFAULT, transform: None, idle: Arc::default() }
    }

    /// Sets the number of threads, including the calling one.
    #[must_use]
    pub fn threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// Refuses JPEGs with more pixels, before memory is allocated for them. The default is 178,956,970, the limit of
    /// Pillow.
    #[must_use]
    pub fn pixels_max(self, pixels: u64) -> Self {
        Self { pixels_max: pixels, ..self }
    }

    /// Calls `transform` with the images of each batch that [`decode`](Self::decode) delivers, and with the ids of their
    /// samples. It changes the images in place.
    ///
    /// ```
    /// use ringmain::beton::ImageDecoder;
    ///
    /// let inverted = ImageDecoder::new().transform(|images, _ids| {
    ///     images.iter_mut().for_each(|level| *level = 255 - *level);
    ///     Ok(())
    /// });
    /// # let _ = inverted;
    /// ```
    #[must_use]
    pub fn transform(
        self,
        transform: impl Fn(&mut [u8], &[u64]) -> Result<(), Box<dyn StdError + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { transform: Some(Arc::new(transform)), ..self }
    }

    /// Returns an error if this image of a batch cannot be decoded, without allocating memory for it. It checks
    /// everything up to the frame header, but not the data after it.
    ///
    /// # Panics
    /// If there is no such sample in the batch, or no such field.
    pub fn check(&self, batch: &Batch, at: usize, field: usize) -> Result<()> {
        let checked = decoder::check(&batch.image(at, field)?, self.pixels_max);
        checked.map_err(|damage| batch.dataset.damaged(batch.ids()[at], field, damage))
    }

    /// Decodes the images of a field into one array, each in the form `form`. `images` must have exactly
    /// [`image_bytes`](ImageForm::image_bytes) for each sample. Random crops depend on the number of the epoch.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn decode(
        &self,
        batch: &Batch,
        field: usize,
        form: &ImageForm,
        epoch: u64,
        images: &mut [u8],
    ) -> Result<()> {
        self.decode_while(batch, field, form, epoch, images, &mut || true).map(drop)
    }

    /// Like [`decode`](Self::decode), but the calling thread calls `go_on` before each image that it decodes. If it returns
    /// `false`, no further image is begun, and the result is `false`.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn decode_while(
        &self,
        batch: &Batch,
        field: usize,
        form: &ImageForm,
        epoch: u64,
        images: &mut [u8],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let (needed, given) = (batch.len().saturating_mul(form.image_bytes()), images.len());
        if needed != given {
            return Err(Error::BufferSize { item: None, needed, given });
        }
        let work = |state: &mut DecoderState, at: usize, image: &Image<'_>, out: &mut [u8]| {
            let key = (epoch, batch.ids()[at]);
            state.deliver(image, form, key, self.pixels_max, out)
        };
        let outs = images.chunks_exact_mut(form.image_bytes()).enumerate();
        let is_done = self.each(batch, field, outs, batch.len(), work, go_on)?;
        match &self.transform {
            Some(transform) if is_done => {
                transform(images, batch.ids()).map_err(|cause| Error::Transform {
                    path: batch.dataset.path.to_path_buf(),
                    samples: batch.ids().into(),
                    cause,
                })?
            }
            _ => {}
        }
        Ok(is_done)
    }

    /// Decodes images in their own sizes, without the transform. `images` has for each the place in the batch and memory
    /// of height × width × 3 bytes. The calling thread calls `go_on` as in [`decode_while`](Self::decode_while).
    ///
    /// # Panics
    /// If there is no such sample in the batch, or no such field.
    pub fn decode_each(
        &self,
        batch: &Batch,
        field: usize,
        images: &mut [(usize, &mut [u8])],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let work = |state: &mut DecoderState, _: usize, image: &Image<'_>, out: &mut [u8]| {
            Ok(state.decode(image, self.pixels_max, out)?)
        };
        let count = images.len();
        let outs = images.iter_mut().map(|(at, out)| (*at, &mut **out));
        self.each(batch, field, outs, count, work, go_on)
    }

    /// Decodes the images at these places of the batch.
    fn each<'o>(
        &self,
        batch: &Batch,
        field: usize,
        outs: impl Iterator<Item = (usize, &'o mut [u8])> + Send,
        count: usize,
        work: impl Fn(&mut DecoderState, usize, &Image<'_>, &mut [u8]) -> Result<(), Failed> + Sync,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let threads =
            NonZeroUsize::new(count).map_or(NonZeroUsize::MIN, |count| count.min(self.threads));
        let work = |state: &mut Borrowed<'_>, _: usize, (at, out): (usize, &'o mut [u8])| {
            let image = batch.image(at, field)?;
            work(state, at, &image, out).map_err(|failed| match failed {
                Failed::Damaged(damage) => batch.dataset.damaged(batch.ids()[at], field, damage),
                Failed::Other(error) => error,
            })
        };
        for_each(outs, threads, || self.state(), work, go_on)
    }

    /// Returns a state that goes back to the decoder when it is dropped.
    fn state(&self) -> Borrowed<'_> {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        Borrowed { decoder: self, state: idle.unwrap_or_default() }
    }
}

impl Default for ImageDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ImageDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageDecoder")
            .field("threads", &self.threads)
            .field("pixels_max", &self.pixels_max)
            .finish_non_exhaustive()
    }
}

/// A state while a thread uses it.
struct Borrowed<'a> {
    decoder: &'a ImageDecoder,
    state: DecoderState,
}

impl Deref for Borrowed<'_> {
    type Target = DecoderState;

    fn deref(&self) -> &DecoderState {
        &self.state
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut DecoderState {
        &mut self.state
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // A state that panicked may be broken.
        if thread::panicking() {
            return;
        }
        self.state.trim();
        if let Ok(mut idle) = self.decoder.idle.try_lock() {
            if idle.len() < self.decoder.threads.get() {
                idle.push(std::mem::take(&mut self.state));
            }
        }
    }
}
