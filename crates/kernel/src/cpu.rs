//! What this machine's processor is good at.

/// Whether AES-256-GCM is faster here than ChaCha20-Poly1305: AES and carry-less multiplication
/// are done in hardware. Goes into a handshake as `Hello::fast_aes`.
pub fn fast_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let fast = std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let fast = std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    let fast = false;
    fast
}
