//! Whether a JPEG has all of its image data, which zune-jpeg does not tell.
//!
//! zune-jpeg 0.5.15 ends without an error at some markers in the middle of the image data, and after an early end of
//! the image it decodes zeros. If the colours are in separate scans, it loses rows of those that have more rows than
//! others. Three checks together find all of this:
//!
//! - The segments follow each other without other bytes. The image data has no markers but restarts, and these are as
//!   many as the frame needs, in their order.
//! - Each level comes from a scan, and in progressive JPEGs from a series of scans to its last bit.
//! - The data ends with ones. No Huffman code has only ones (T.81, annex C), so a decoder that needs more data than
//!   there is fails.

use std::io::BufRead as _;

use crate::beton::frame::segment;

const RESTART: u8 = 0xD0;
const RESTART_LAST: u8 = 0xD7;
const END: u8 = 0xD9;
const SCAN: u8 = 0xDA;
const RESTART_INTERVAL: u8 = 0xDD;
const COMMENT: u8 = 0xFE;

const CUT: &str = "it is truncated";

/// The number of levels in a block.
const LEVELS: usize = 64;

/// The part of a frame header that says how much image data there is.
struct Frame {
    is_progressive: bool,
    height: usize,
    width: usize,
    components: Vec<Component>,
}

struct Component {
    id: u8,
    /// The number of its blocks in a unit of the image, across and down.
    sampling: (usize, usize),
    /// The number of bits that each level still lacks; `None` before its first scan.
    lacking_bits: [Option<u8>; LEVELS],
}

/// Replaces `guarded` by the JPEG with another end, at which zune-jpeg fails if it needs more data. Returns an error if the
/// JPEG is not well formed.
pub(super) fn guard(jpeg: &[u8], guarded: &mut Vec<u8>) -> Result<(), String> {
    let (mut rest, mut frame, mut interval) = (jpeg.get(2..).ok_or(CUT)?, None, 0);
    loop {
        let at = jpeg.len() - rest.len();
        let (marker, after) = next_marker(rest)?;
        if marker == END {
            if !frame.is_some_and(|frame: Frame| frame.is_complete()) {
                return Err(CUT.to_owned());
            }
            // zune-jpeg reads at most 8 bytes ahead, so it sees the comment only if it needs more data or is done.
            // The bits that only refine levels have no codes: there, the comment in their place is an error.
            let ones = [[0xFF, 0]; 16]; // as image data, each pair is a byte of ones
            let end = [0xFF, COMMENT, 0, 2, 0xFF, END];
            guarded.clear();
            for part in [&jpeg[..at], ones.as_flattened(), &end] {
                guarded.extend_from_slice(part);
            }
            return Ok(());
        }
        let (bytes, next) = segment(after).ok_or(CUT)?;
        rest = next;
        match marker {
            0xC0..=0xC2 => frame = Some(Frame::new(marker, bytes).ok_or(CUT)?),
            RESTART_INTERVAL => {
                interval = usize::from(u16::from_be_bytes(*bytes.first_chunk().ok_or(CUT)?));
            }
            SCAN => {
                let frame = frame.as_mut().ok_or("it has image data before its frame")?;
                let units = frame.scan(bytes)?;
                let restarts = units.checked_div(interval).map_or(0, |_| (units - 1) / interval);
                rest = image_data(next, restarts)?;
                let (marker, _) = next_marker(rest)?;
                if marker != END && !frame.is_progressive && frame.is_complete() {
                    return Err(misplaced(marker));
                }
            }
            _ => {}
        }
    }
}

impl Frame {
    fn new(marker: u8, bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let component = |bytes: &[u8]| Component {
            id: bytes[0],
            sampling: (usize::from(bytes[1] >> 4).max(1), usize::from(bytes[1] & 15).max(1)),
            lacking_bits: [None; LEVELS],
        };
        Some(Self {
            is_progressive: marker == 0xC2,
            height: usize::from(number(1)?).max(1),
            width: usize::from(number(3)?).max(1),
            components: bytes.get(6..)?.chunks_exact(3).map(component).collect(),
        })
    }

    /// Notes what a scan has, and returns the number of its units, of which a restart interval counts some.
    fn scan(&mut self, header: &[u8]) -> Result<usize, String> {
        let (count, header) = header.split_first().ok_or(CUT)?;
        let (ids, range) = header.split_at_checked(2 * usize::from(*count)).ok_or(CUT)?;
        let [first, last, bits] = *range.first_chunk().ok_or(CUT)?;
        let is_apart = !self.is_progressive && usize::from(*count) < self.components.len();
        let (first, last, before, after) = match self.is_progressive {
            true => (usize::from(first), usize::from(last), bits >> 4, bits & 15),
            false => (0, LEVELS - 1, 0, 0),
        };
        let samplings = self.components.iter().map(|component| component.sampling);
        let most = samplings.fold((1, 1), |most, each| (most.0.max(each.0), most.1.max(each.1)));
        let mut own = (1, 1);
        for id in ids.chunks_exact(2).map(|component| component[0]) {
            let mut components = self.components.iter_mut();
            let component = components.find(|component| component.id == id);
            let component = component.ok_or("it has image data of an unknown colour")?;
            for lacking in
                component.lacking_bits.get_mut(first..=last).ok_or("a scan is damaged")?
            {
                let is_next = match *lacking {
                    None => before == 0,
                    Some(bits) => before == bits && after < before,
                };
                if !is_next {
                    return Err("a scan is missing, or comes twice".to_owned());
                }
                *lacking = Some(after);
            }
            own = component.sampling;
            if is_apart && (*count > 1 || own.1 > 1) {
                return Err("its colours are in separate scans; convert it".to_owned());
            }
        }
        // The units of one component are its blocks; those of several have all their blocks of a part of the image.
        let own = if *count == 1 { own } else { (1, 1) };
        let across = (self.width * own.0).div_ceil(8 * most.0);
        Ok(across * (self.height * own.1).div_ceil(8 * most.1))
    }

    fn is_complete(&self) -> bool {
        let mut levels = self.components.iter().flat_map(|component| &component.lacking_bits);
        levels.all(|lacking| *lacking == Some(0))
    }
}

/// Returns the next marker and the bytes after it.
fn next_marker(bytes: &[u8]) -> Result<(u8, &[u8]), String> {
    let fill = bytes.iter().take_while(|byte| **byte == 0xFF).count();
    match bytes.get(fill..).and_then(<[u8]>::split_first) {
        None => Err(CUT.to_owned()),
        Some((code, _)) if fill == 0 || *code == 0 => {
            Err("it has other bytes between its segments".to_owned())
        }
        Some((code @ (0x01..=0xBF | RESTART..=RESTART_LAST), _)) => Err(misplaced(*code)),
        Some((code, after)) => Ok((*code, after)),
    }
}

/// Returns the bytes from the marker on at which image data with this many restarts ends.
fn image_data(bytes: &[u8], restarts: usize) -> Result<&[u8], String> {
    let (mut rest, mut found) = (bytes, 0);
    loop {
        // A slice has no errors. This searches much faster than an iterator.
        let _ = rest.skip_until(0xFF);
        let (code, after) = rest.split_first().ok_or(CUT)?;
        match *code {
            0 => rest = after,
            0xFF => {} // a fill byte: the next search finds it
            code @ RESTART..=RESTART_LAST => {
                if found == restarts || usize::from(code - RESTART) != found % 8 {
                    return Err(misplaced(code));
                }
                (found, rest) = (found + 1, after);
            }
            _ if found < restarts => return Err(CUT.to_owned()),
            _ => return Ok(&bytes[bytes.len() - rest.len() - 1..]),
        }
    }
}

fn misplaced(marker: u8) -> String {
    format!("the marker {marker:02X} is not where it can be")
}
