//! Decides, once, which Linux-only backends are compiled in: a feature alone is not enough,
//! because features are additive and the same manifest builds on macOS and Windows.

fn main() {
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let has = |feature: &str| is_linux && std::env::var_os(feature).is_some();
    let direct = has("CARGO_FEATURE_DIRECT");
    let uring = has("CARGO_FEATURE_URING");
    let tokio_uring = has("CARGO_FEATURE_TOKIO_URING");
    let gds = has("CARGO_FEATURE_GDS");
    for (is_in, cfg) in [
        (direct, "linux_direct"),
        (uring, "linux_uring"),
        (tokio_uring, "linux_tokio_uring"),
        (gds, "linux_gds"),
        // Backends with an io_uring.
        (uring || tokio_uring, "linux_rings"),
        // Backends that read past the page cache.
        (direct || uring || tokio_uring, "linux_device"),
    ] {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        if is_in {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
