//! The fuzz target of JPEGs.
#![allow(
    clippy::incompatible_msrv,
    reason = "only tests use it, with the compiler of the workspace"
)]

use super::frame::frame_of;
use super::{Image, ImageMode};

/// The bytes are a JPEG. It is refused, or every pixel is written: the memory before does not matter.
pub(crate) fn jpeg(bytes: &[u8]) {
    let (width, height) = frame_of(bytes).map_or((8, 8), |frame| (frame.width, frame.height));
    let image = Image { mode: ImageMode::Jpeg, width, height, bytes };
    if image.rgb_bytes() > 1 << 20 {
        return;
    }
    let decoded = |memory: u8| {
        let mut rgb = vec![memory; image.rgb_bytes()];
        image.decode_into(&mut rgb).map(|()| rgb)
    };
    assert_eq!(decoded(0x55), decoded(0xAA));
}
