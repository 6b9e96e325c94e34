//! The frame header of a JPEG, which has its size and its kind.

/// What the frame header says about a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) width: u16,
    pub(super) height: u16,
    /// The bits of a level.
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(super) bits: u8,
    /// The number of colours: 1 in grey images, 3 in colour, 4 in CMYK.
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(super) components: u8,
}

/// Returns the frame header; `None` if the bytes are not a JPEG, end before its frame header, or have no pixels.
pub(super) fn frame_of(bytes: &[u8]) -> Option<Frame> {
    let mut rest = bytes.strip_prefix(&[0xFF, 0xD8])?;
    loop {
        rest = rest.strip_prefix(&[0xFF])?;
        let (marker, after) = rest.split_first()?;
        match marker {
            0xFF => continue,                               // fill bytes
            0x01 | 0xD0..=0xD7 => rest = after,             // markers without a length
            0xC4 | 0xC8 | 0xCC => rest = segment(after)?.1, // tables, numbered among the frames
            0xC0..=0xCF => {
                let (frame, _) = segment(after)?;
                let number = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
                let (width, height) = (number(3)?, number(1)?);
                let found =
                    Frame { width, height, bits: *frame.first()?, components: *frame.get(5)? };
                return Some(found).filter(|found| width > 0 && found.height > 0);
            }
            0xD9 | 0xDA => return None, // image data or end of image before a frame
            _ => rest = segment(after)?.1,
        }
    }
}

/// Returns the bytes of a segment after its length, and the bytes after the segment.
pub(super) fn segment(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(u16::from_be_bytes(*bytes.first_chunk()?));
    Some((bytes.get(2..len)?, bytes.get(len..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the start of a file as libjpeg writes it: a JFIF segment, a table, a baseline frame.
    fn sample() -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2];
        bytes.extend([0xFF, 0xC4, 0, 3, 9]);
        bytes.extend([0xFF, 0xFF, 0xC0, 0, 11, 8, 0x01, 0x02, 0x03, 0x04, 1, 1, 0x11, 0]);
        bytes
    }

    #[test]
    fn the_size_and_the_kind_are_read_from_the_frame() {
        let found = Frame { width: 0x0304, height: 0x0102, bits: 8, components: 1 };
        assert_eq!(frame_of(&sample()), Some(found));
    }

    #[test]
    fn truncated_or_foreign_bytes_have_no_size() {
        let whole = sample();
        for len in 0..whole.len() {
            assert_eq!(frame_of(&whole[..len]), None, "{len}");
        }
        assert_eq!(frame_of(b"\x89PNG\r\n"), None);
        assert_eq!(frame_of(&[0xFF, 0xD8, 0xFF, 0xD9]), None);
        let mut none = whole.clone();
        none[19..23].fill(0);
        assert_eq!(frame_of(&none), None);
    }
}
