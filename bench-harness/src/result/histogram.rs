//! Latency histograms as text, as in `latency_histogram` of a cell. Every implementation of
//! HdrHistogram reads them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer, Serializer, V2DeflateSerializeError, V2DeflateSerializer,
};
use hdrhistogram::{AdditionError, Histogram};

/// Why a histogram could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    /// The histogram does not fit the format.
    #[error("cannot write a latency histogram: {0}")]
    Encode(#[source] V2DeflateSerializeError),
    /// The text is not base64.
    #[error("a latency histogram is not base64: {0}")]
    Base64(#[source] base64::DecodeError),
    /// The bytes are not a compressed histogram.
    #[error("a latency histogram is damaged: {0}")]
    Decode(#[source] DeserializeError),
    /// Two histograms have incompatible ranges.
    #[error("latency histograms cannot be added up: {0}")]
    Merge(#[source] AdditionError),
}

/// Encodes a histogram: V2, deflated, in base64.
pub fn encode(histogram: &Histogram<u64>) -> Result<String, HistogramError> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    serializer.serialize(histogram, &mut bytes).map_err(HistogramError::Encode)?;
    Ok(BASE64_STANDARD.encode(bytes))
}

/// Decodes the text of [`encode`]. Returns `None` for an empty text, which means that single latencies
/// were not recorded.
pub fn decode(text: &str) -> Result<Option<Histogram<u64>>, HistogramError> {
    if text.is_empty() {
        return Ok(None);
    }
    let bytes = BASE64_STANDARD.decode(text).map_err(HistogramError::Base64)?;
    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
    histogram.map(Some).map_err(HistogramError::Decode)
}

/// Merges histograms. Returns `None` if they have no values.
pub fn merge<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<Option<Histogram<u64>>, HistogramError> {
    let mut merged: Option<Histogram<u64>> = None;
    for text in texts {
        merged = match (merged, decode(text)?) {
            (merged, None) => merged,
            (None, Some(mut first)) => {
                // Others may have larger values than the first.
                first.auto(true);
                Some(first)
            }
            (Some(mut merged), Some(next)) => {
                merged.add(&next).map_err(HistogramError::Merge)?;
                Some(merged)
            }
        };
    }
    Ok(merged.filter(|histogram| !histogram.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        values.iter().for_each(|value| histogram.record(*value).unwrap());
        histogram
    }

    #[test]
    fn a_histogram_survives_a_round_trip() {
        for values in [&[][..], &[1], &[1, 1000, 1_000_000, 59_000_000_000]] {
            let histogram = of(values);
            assert_eq!(decode(&encode(&histogram).unwrap()).unwrap(), Some(histogram));
        }
        assert_eq!(decode("").unwrap(), None);
    }

    #[test]
    fn merging_keeps_every_value() {
        let small = Histogram::new_with_bounds(1, 1000, 3).unwrap();
        let texts = [small, of(&[10, 20]), of(&[30_000_000])].map(|h| encode(&h).unwrap());
        let merged = merge(texts.iter().map(String::as_str)).unwrap().unwrap();
        assert_eq!((merged.len(), merged.min()), (3, 10));
        assert!(merged.equivalent(merged.max(), 30_000_000));
        assert!(merge([""]).unwrap().is_none());
        assert!(merge([encode(&of(&[])).unwrap().as_str()]).unwrap().is_none());
    }

    #[test]
    fn damage_is_noticed() {
        let text = encode(&of(&[5, 6, 7])).unwrap();
        assert!(matches!(decode("not base64"), Err(HistogramError::Base64(_))));
        assert!(matches!(decode(&text[..text.len() - 8]), Err(HistogramError::Decode(_))));
        assert!(matches!(decode("AAAA"), Err(HistogramError::Decode(_))));
    }
}
