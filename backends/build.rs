//! Decides, once, which Linux-only backends are compiled in: a feature alone is not enough,
//! because features are additive and the same manifest builds on macOS and Windows.

fn main() {
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    for (feature, cfg) in [
        ("CARGO_FEATURE_DIRECT", "linux_direct"),
        ("CARGO_FEATURE_URING", "linux_uring"),
        ("CARGO_FEATURE_TOKIO_URING", "linux_tokio_uring"),
    ] {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        if linux && std::env::var_os(feature).is_some() {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
