//! `ringmain gen`: test data from a seed.

use std::io::Write;
use std::sync::Arc;

use ringmain::weights::Dtype;

use crate::cli::{
    GenArgs, GenBetonArgs, GenKind, GenNpyArgs, GenRawArgs, GenSafetensorsArgs, GenShardsArgs,
};
use crate::failure::Failure;
use crate::generate::{
    BetonSpec, Extent, Model, ModelSizes, ShardSizes, npy_bytes, refuse_shards, write_beton,
    write_npy, write_raw, write_shards,
};
use crate::system::interrupt;
use crate::system::space::{Remedy, check_space, existing_folder, write_folder};
use crate::system::whole_file::{folder, refuse_existing};
use crate::text::progress::Progress;
use crate::text::size::format_bytes;

/// `ringmain gen`.
pub(crate) fn run(args: &GenArgs, out: &mut impl Write) -> Result<(), Failure> {
    interrupt::handle();
    let line = match &args.kind {
        GenKind::Raw(args) => raw(args)?,
        GenKind::Npy(args) => npy(args)?,
        GenKind::Shards(args) => shards(args)?,
        GenKind::Beton(args) => beton(args)?,
        GenKind::Safetensors(args) => safetensors(args)?,
    };
    writeln!(out, "{line}").map_err(Failure::Output)
}

fn raw(args: &GenRawArgs) -> Result<String, Failure> {
    refuse_existing(&args.path, "file")?;
    let progress = Progress::bytes("writing", args.bytes.0);
    write_raw(&args.path, args.bytes.0, args.seed, &progress)?;
    progress.finish();
    Ok(format!("{}: {}, seed {}", args.path.display(), format_bytes(args.bytes.0), args.seed))
}

fn npy(args: &GenNpyArgs) -> Result<String, Failure> {
    let bytes = format_bytes(npy_bytes(&args.shape)?);
    refuse_existing(&args.path, "file")?;
    write_npy(&args.path, &args.shape, args.seed)?;
    Ok(format!("{}: f32 {:?}, {bytes}, seed {}", args.path.display(), args.shape, args.seed))
}

fn shards(args: &GenShardsArgs) -> Result<String, Failure> {
    let sizes = ShardSizes { rows: args.rows, width: args.width, shards: args.shards };
    let bytes = sizes.bytes()?;
    check_space(&existing_folder(&args.dir), bytes, Remedy::Less("--rows"))?;
    let progress = Progress::bytes("writing", bytes);
    write_folder(&args.dir, |written| {
        refuse_shards(&args.dir)?;
        write_shards(&args.dir, sizes, args.seed, &progress, written)
    })?;
    progress.finish();
    let ShardSizes { rows, width, shards } = sizes;
    Ok(format!(
        "{}: {shards} shards, {rows} rows of {width} f32, {}, seed {}",
        args.dir.display(),
        format_bytes(bytes),
        args.seed
    ))
}

fn beton(args: &GenBetonArgs) -> Result<String, Failure> {
    let page_bytes = u32::try_from(args.page_size.0).map_err(|_| {
        let message = "a page must be smaller than 4 GiB (--page-size)".to_owned();
        Failure::Usage { message }
    })?;
    let spec = BetonSpec {
        samples: args.samples,
        sample_bytes: args.sample_bytes.0,
        fields: args.fields.clone(),
        is_varied: args.varied,
        page_bytes,
        alignment: args.align.alignment(),
        workers: args.workers,
        is_deterministic: args.deterministic,
        is_direct: args.direct,
        seed: args.seed,
    };
    refuse_existing(&args.path, "file")?;
    check_space(&folder(&args.path), spec.file_bytes()?, Remedy::Less("--samples"))?;
    let progress = Arc::new(Progress::bytes("writing", spec.region_bytes()?));
    let report = write_beton(&args.path, &spec, &progress)?;
    progress.finish();
    let (path, samples, seed) = (args.path.display(), report.samples, spec.seed);
    let (pages, page_bytes) = (report.pages, format_bytes(u64::from(spec.page_bytes)));
    Ok(format!(
        "{path}: {samples} samples of {} in {pages} pages of {page_bytes}, {}, seed {seed}",
        format_bytes(spec.sample_bytes),
        format_bytes(report.file_bytes)
    ))
}

fn safetensors(args: &GenSafetensorsArgs) -> Result<String, Failure> {
    let extent = args.shape.clone().map_or(Extent::Total(args.bytes.0), Extent::Shape);
    let sizes = ModelSizes { tensors: args.tensors, extent, dtypes: args.dtypes.clone() };
    let model = Model::new(&sizes, args.seed)?;
    let progress = Progress::bytes("writing", model.bytes()?);
    match args.files {
        None => {
            refuse_existing(&args.path, "file")?;
            model.write_file(&args.path, &progress)?;
        }
        Some(files) => model.write_files(&args.path, files, &progress)?,
    }
    progress.finish();
    let dtypes: Vec<String> = args.dtypes.iter().map(Dtype::to_string).collect();
    let files = args.files.map(|files| format!(" in {files} files")).unwrap_or_default();
    Ok(format!(
        "{}: {} tensors of {}{files}, {}, seed {}",
        args.path.display(),
        args.tensors,
        dtypes.join(", "),
        format_bytes(model.bytes()?),
        args.seed
    ))
}
