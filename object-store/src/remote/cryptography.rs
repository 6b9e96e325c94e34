//! The cryptography of TLS.

/// Lets TLS take its cryptography from `ring`, if the process has not chosen yet. Calling it again changes nothing.
///
/// The clients of this crate's features have no cryptography of their own, and making one panics if none was chosen.
/// Both backends choose before they make a client, so this function is only for programs that make clients of
/// `object_store` or `reqwest` themselves before any of them.
///
/// ```
/// ringmain_object_store::remote::choose_cryptography();
/// let store = object_store::http::HttpBuilder::new().with_url("https://example.org").build()?;
/// # drop(store);
/// # Ok::<(), object_store::Error>(())
/// ```
pub fn choose_cryptography() {
    // It fails if there is a choice, and leaves it.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
