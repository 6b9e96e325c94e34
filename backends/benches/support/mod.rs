//! Code that all comparisons share. They need Linux.

#[cfg(target_os = "linux")]
mod interleaved;

#[cfg(target_os = "linux")]
pub(crate) use interleaved::*;

/// Defines `main`: it runs `linux::main`, or says that the comparisons need Linux.
macro_rules! linux_main {
    () => {
        fn main() {
            #[cfg(target_os = "linux")]
            linux::main();
            #[cfg(not(target_os = "linux"))]
            println!("these comparisons need Linux");
        }
    };
}
