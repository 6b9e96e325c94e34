//! Images: decoded by several threads, cropped, resampled to one size, and delivered as numbers.

// | file | content |
// |---|---|
// | `form.rs`, `crop.rs`, `pixels.rs` | the form of delivered images: their size, the part that is used, their numbers |
// | `batch_decode.rs`, `threads.rs` | all images of a batch, decoded by several threads |
// | `single.rs` | one image in its own size |
// | `decoder.rs`, `zune.rs`, `turbo.rs` | JPEGs: the checks, and the two libraries that decode |
// | `scans.rs` | finds damage that zune-jpeg decodes |
// | `resample.rs` | another size |

mod batch_decode;
mod crop;
mod decoder;
mod form;
#[cfg(all(feature = "turbojpeg", target_os = "linux"))]
#[path = "turbo.rs"]
mod library;
#[cfg(not(all(feature = "turbojpeg", target_os = "linux")))]
#[path = "zune.rs"]
mod library;
mod pixels;
mod resample;
#[cfg(not(all(feature = "turbojpeg", target_os = "linux")))]
mod scans;
mod single;
mod threads;

pub use batch_decode::ImageDecoder;
pub use crop::Crop;
pub use form::ImageForm;
pub use pixels::{PixelLayout, PixelType};

/// Red, green and blue.
const CHANNELS: usize = 3;
