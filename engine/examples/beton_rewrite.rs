//! Rewrites a dataset with other pages and with its regions aligned for direct reads:
//!
//! ```text
//! cargo run --release -p ringmain --features beton --example beton_rewrite -- \
//!     FROM.beton TO.beton [ALIGNMENT [PAGE_MIB [WORKERS]]]
//! ```
//!
//! Every worker reads the samples that it writes. Fields of custom types need a handler, which your
//! own program would pass to both the reader and the writer.

use std::error::Error;

use ringmain::Engine;
use ringmain::beton::{
    BetonReader, BetonWriter, Image, ImageMode, RegionAlignment, SampleBuilder, Value,
};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, options @ ..] = args.as_slice() else {
        return Err("usage: beton_rewrite FROM TO [ALIGNMENT [PAGE_MIB [WORKERS]]]".into());
    };
    let number =
        |at: usize, default: usize| options.get(at).map_or(Ok(default), |text| text.parse());
    let (align, page_mib, workers) = (number(0, 4096)?, number(1, 8)?, number(2, 2)?);
    let alignment = RegionAlignment::ALL.into_iter().find(|known| known.bytes() == align.max(1));

    let reader = BetonReader::open(&Engine::new()?, from)?;
    let report = BetonWriter::new(reader.fields().iter().cloned())
        .page_bytes(u32::try_from(page_mib << 20)?)
        .alignment(alignment.ok_or("the alignment must be 0, 512 or 4096")?)
        .workers(workers)
        .write_indexed(to, reader.len(), |id, out| {
            let sample = reader.read_sample(id)?;
            (0..reader.fields().len()).try_for_each(|field| copy(sample.value(field)?, out))
        })?;
    eprintln!("{to}: {} samples, {} pages", report.samples, report.pages);
    Ok(())
}

fn copy(value: Value<'_>, out: &mut SampleBuilder<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
    match value {
        Value::Int(value) => out.int(value)?,
        Value::Float(value) => out.float(value)?,
        Value::Bytes(bytes) => out.bytes(bytes)?,
        Value::Json(text) => out.json(text)?,
        Value::Array(array) => out.array(array.bytes)?,
        Value::Image(Image { mode: ImageMode::Jpeg, bytes, .. }) => out.image_jpeg(bytes)?,
        Value::Image(Image { width, height, bytes, .. }) => out.image_raw(width, height, bytes)?,
        _ => return Err("a custom field needs a handler".into()),
    };
    Ok(())
}
