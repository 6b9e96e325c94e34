//! Whether a JPEG has all of its image data, which zune-jpeg does not tell.
//!
//! zune-jpeg 0.5.15 ends without an error at some markers in the middle of the image data, and after an early end of
//! the image it decodes zeros. Three checks together find this:
//!
//! - The segments follow each other without other bytes. The image data has no markers but restarts, and these are as
//!   many as the frame needs, in their order.
//! - Each level comes from a scan, and in progressive JPEGs from a series of scans to its last bit.
//! - The last scan, and each part of a baseline scan before a restart, ends with ones. No Huffman code has only ones
//!   (T.81, annex C), so a decoder that needs more data than there is fails.
//!
//! JPEGs have no checksums: damage that can be decoded to other levels is not found, nor are bytes that are missing at
//! the end of a progressive scan that is not the last one.
//!
//! zune-jpeg decodes some rare kinds to wrong pixels: colours in separate scans, and a first component with fewer
//! samples than another. They are refused.

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

/// Image data of ones: each pair is a byte of them. zune-jpeg reads at most 8 bytes ahead, so it reaches the end of these
/// only if it needs more data or is done.
const ONES: [[u8; 2]; 16] = [[0xFF, 0]; 16];

/// The bits that only refine levels have no codes: there, the comment in their place is an error.
const GUARDED_END: [u8; 6] = [0xFF, COMMENT, 0, 2, 0xFF, END];

/// Replaces `guarded` by the JPEG with ones where image data ends, at which zune-jpeg fails if it needs more. Returns an
/// error if the JPEG is not well formed, or if zune-jpeg decodes its kind to wrong pixels.
pub(super) fn guard(jpeg: &[u8], guarded: &mut Vec<u8>) -> Result<(), String> {
    guarded.clear();
    guarded.try_reserve(jpeg.len() + jpeg.len() / 8 + 64).map_err(|error| error.to_string())?;
    let (mut rest, mut frame, mut interval) = (jpeg.get(2..).ok_or(CUT)?, None, 0);
    // The bytes from here on are not in `guarded` yet.
    let mut from = jpeg;
    loop {
        let (marker, after) = next_marker(rest)?;
        let is_complete = frame.as_ref().is_some_and(Frame::is_complete);
        let is_progressive = frame.as_ref().is_some_and(|frame: &Frame| frame.is_progressive);
        // After the scan of a baseline image, the rest belongs to something else.
        if marker == END || (is_complete && !is_progressive) {
            if !is_complete {
                return Err("it lacks scans".to_owned());
            }
            copy(&mut from, rest, guarded);
            for part in [ONES.as_flattened(), &GUARDED_END] {
                guarded.extend_from_slice(part);
            }
            return Ok(());
        }
        let (bytes, next) = segment(after).ok_or(CUT)?;
        rest = next;
        match marker {
            0xC0..=0xC2 => frame = Some(Frame::new(marker, bytes)?),
            RESTART_INTERVAL => {
                interval = usize::from(u16::from_be_bytes(*bytes.first_chunk().ok_or(CUT)?));
            }
            SCAN => {
                let frame = frame.as_mut().ok_or("it has image data before its frame")?;
                let units = frame.scan(bytes)?;
                let restarts = units.checked_div(interval).map_or(0, |_| (units - 1) / interval);
                rest = image_data(next, restarts, |restart| {
                    // A progressive scan may have no codes, in which ones would be levels.
                    if !frame.is_progressive {
                        copy(&mut from, restart, guarded);
                        guarded.extend_from_slice(ONES.as_flattened());
                    }
                })?;
            }
            _ => {}
        }
    }
}

/// Copies the bytes of `from` that are before `to`, which is the end of it.
fn copy<'a>(from: &mut &'a [u8], to: &'a [u8], guarded: &mut Vec<u8>) {
    guarded.extend_from_slice(&from[..from.len() - to.len()]);
    *from = to;
}

impl Frame {
    fn new(marker: u8, bytes: &[u8]) -> Result<Self, String> {
        let number =
            |at: usize| Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)));
        let component = |bytes: &[u8]| Component {
            id: bytes[0],
            sampling: (usize::from(bytes[1] >> 4).max(1), usize::from(bytes[1] & 15).max(1)),
            lacking_bits: [None; LEVELS],
        };
        let components = bytes.get(6..).ok_or(CUT)?.chunks_exact(3).map(component).collect();
        let (height, width) = (number(1).ok_or(CUT)?.max(1), number(3).ok_or(CUT)?.max(1));
        let frame = Self { is_progressive: marker == 0xC2, height, width, components };
        let first = frame.components.first().map(|component| component.sampling);
        if frame.components.len() > 1 && first != Some(frame.most()) {
            return Err("its first colour has fewer samples than another; convert it".to_owned());
        }
        Ok(frame)
    }

    /// Returns the most samples of a component in a unit, across and down.
    fn most(&self) -> (usize, usize) {
        let samplings = self.components.iter().map(|component| component.sampling);
        samplings.fold((1, 1), |most, each| (most.0.max(each.0), most.1.max(each.1)))
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
        if is_apart {
            return Err("its colours are in separate scans; convert it".to_owned());
        }
        let (most, mut own) = (self.most(), (1, 1));
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

/// Returns the next marker that begins a segment or ends the image, and the bytes after it.
fn next_marker(bytes: &[u8]) -> Result<(u8, &[u8]), String> {
    let fill = bytes.iter().take_while(|byte| **byte == 0xFF).count();
    match bytes.get(fill..).and_then(<[u8]>::split_first) {
        None => Err(CUT.to_owned()),
        Some((code, _)) if fill == 0 || *code == 0 => {
            Err("it has other bytes between its segments".to_owned())
        }
        // Markers without a segment. Some encoders write a restart after the last unit.
        Some((0x01 | RESTART..=RESTART_LAST, after)) => next_marker(after),
        Some((code @ 0x02..=0xBF, _)) => Err(misplaced(*code)),
        Some((code, after)) => Ok((*code, after)),
    }
}

/// Returns the bytes from the marker on at which image data with this many restarts ends. `at_restart` gets the bytes
/// from each restart on.
fn image_data<'a>(
    bytes: &'a [u8],
    restarts: usize,
    mut at_restart: impl FnMut(&'a [u8]),
) -> Result<&'a [u8], String> {
    let (mut rest, mut found) = (bytes, 0);
    loop {
        // A slice has no errors. This searches much faster than an iterator.
        let _ = rest.skip_until(0xFF);
        let (code, after) = rest.split_first().ok_or(CUT)?;
        let from_marker = &bytes[bytes.len() - rest.len() - 1..];
        match *code {
            0 => rest = after,
            0xFF => {} // a fill byte: the next search finds it
            code @ RESTART..=RESTART_LAST if found < restarts => {
                if usize::from(code - RESTART) != found % 8 {
                    return Err(misplaced(code));
                }
                at_restart(from_marker);
                (found, rest) = (found + 1, after);
            }
            _ if found < restarts => return Err(CUT.to_owned()),
            _ => return Ok(from_marker),
        }
    }
}

fn misplaced(marker: u8) -> String {
    format!("the marker {marker:02X} is not where it can be")
}
