//! Random secrets and files that only their owner reads.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;

use crate::failure::{ExitCode, Failure};

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bytes of randomness in a token.
pub const TOKEN_BYTES: usize = 32;
/// Digits that 32 bytes always fit in: ⌈256 / log2 62⌉.
const TOKEN_DIGITS: usize = 43;

/// A fresh token: 32 random bytes in base 62.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("read random bytes: {e}"))?;
    Ok(base62(&bytes))
}

/// The bytes as one big-endian number in base 62, padded to 43 digits.
#[must_use]
pub fn base62(bytes: &[u8; TOKEN_BYTES]) -> String {
    let mut number = *bytes;
    let mut digits = [ALPHABET[0]; TOKEN_DIGITS];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = ALPHABET[remainder as usize];
    }
    digits.iter().map(|d| char::from(*d)).collect()
}

/// Writes a file of mode 0600 whole: beside the target first, then renamed over it.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    write_whole(path, text.as_bytes(), 0o600)
}

/// Writes a file whole with a mode: beside the target first, then renamed over it.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let context = || format!("write {}", path.display());
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = Path::new(&beside);
    let written = write_beside(beside, bytes, mode).and_then(|()| std::fs::rename(beside, path));
    if written.is_err() {
        // A full disk is not filled further with halves; what fails is said below.
        std::fs::remove_file(beside).ok();
    }
    written.with_context(context)
}

fn write_beside(beside: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(beside)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)
}

/// The token in a file: one line of printable characters.
///
/// # Errors
/// A [`Failure`] that names the file when it cannot be read or holds something else.
pub fn read_token(path: &Path) -> anyhow::Result<String> {
    let denied = |what: &str| {
        let message = format!("token file {}: {what}", path.display());
        Failure::new(ExitCode::Denied, message)
    };
    let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::unreadable(path, &e),
        _ => denied(&e.to_string()),
    })?;
    let token = text.trim();
    let plain =
        !token.is_empty() && token.len() <= 512 && token.bytes().all(|c| c.is_ascii_graphic());
    if !plain {
        let what = "it holds no token, one line of printable characters: `koi up` writes that of a dev cluster, \
                    for another server ask who runs it";
        return Err(denied(what).into());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base62_of_known_numbers() {
        let mut bytes = [0; TOKEN_BYTES];
        assert_eq!(base62(&bytes), "0".repeat(43));
        bytes[31] = 61;
        assert_eq!(base62(&bytes), format!("{}z", "0".repeat(42)));
        bytes[30..].copy_from_slice(&62_u16.to_be_bytes());
        assert_eq!(base62(&bytes), format!("{}10", "0".repeat(41)));
        // 2^256 − 1 in base 62, from an arbitrary-precision calculator.
        assert_eq!(
            base62(&[255; TOKEN_BYTES]),
            "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1"
        );
    }

    #[test]
    fn tokens_differ_and_are_plain() {
        let (a, b) = (new_token().unwrap(), new_token().unwrap());
        assert_ne!(a, b);
        assert!(
            a.len() == 43 && a.bytes().all(|c| c.is_ascii_alphanumeric()),
            "{a}"
        );
    }

    #[test]
    fn secret_files_are_for_their_owner_alone() {
        let dir = std::env::temp_dir().join(format!("koi-secrets-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("token");
        std::fs::write(&path, "old").unwrap();
        write_private(&path, "abc\n").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read_token(&path).unwrap(), "abc");
        std::fs::write(&path, "two words\n").unwrap();
        assert!(read_token(&path).is_err());
        std::fs::write(&path, "\n").unwrap();
        let none = dir.join("none");
        for (path, code) in [(&path, ExitCode::Denied), (&none, ExitCode::NotFound)] {
            let failure = read_token(path).unwrap_err().downcast::<Failure>().unwrap();
            assert_eq!(failure.code, code);
            assert!(
                failure.message.contains(&path.display().to_string()),
                "{failure}"
            );
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
