//! Who may connect: bearer tokens, kept as keyed digests. The host of an agent comes from its
//! token, never from a message.

mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, Mac};
use koi_core::ids::HostId;
use koi_core::settings::shown;
use sha2::Sha256;
use tonic::{Request, Status};

/// Shorter secrets can be guessed; an empty one is a file that nobody filled.
const MIN_SECRET_BYTES: usize = 16;
/// Longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 256;

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A person or platform that runs the cluster.
    Operator {
        /// Name for the audit trail.
        name: String,
    },
    /// The agent of one host.
    Agent {
        /// Its host.
        host: HostId,
    },
}

impl Identity {
    /// Name for the audit trail and for idempotency keys.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Operator { name } => format!("operator:{name}"),
            Self::Agent { host } => format!("agent:{host}"),
        }
    }
}

/// Why the table of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A file cannot be read or written.
    #[error("cannot access {path}")]
    File {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {message}")]
    Malformed {
        /// File.
        path: PathBuf,
        /// Message.
        message: String,
    },
    /// The system gave no random bytes.
    #[error("no random bytes for the token pepper: {0}")]
    Entropy(getrandom::Error),
}

impl AuthError {
    /// True when only another file helps; a restart finds the same one.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        use std::io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
        match self {
            Self::Malformed { .. } => true,
            Self::File { source, .. } => {
                matches!(source.kind(), NotFound | PermissionDenied | InvalidData)
            }
            Self::Entropy(_) => false,
        }
    }
}

/// One `[[token]]` of the file.
#[derive(Debug)]
struct TokenRow {
    role: Role,
    name: Option<String>,
    host: Option<HostId>,
    secret_file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Operator,
    Agent,
}

/// Digest of a token under the server's pepper.
pub type TokenDigest = [u8; 32];

/// Everybody who may connect. Held in memory, so that an absent database locks nobody out.
#[derive(Clone)]
pub struct TokenTable {
    pepper: Arc<[u8]>,
    identities: Arc<BTreeMap<TokenDigest, Identity>>,
}

impl TokenTable {
    /// Reads `tokens.toml` and the secrets it names; makes the pepper on first use.
    ///
    /// # Errors
    /// [`AuthError`] naming the file.
    pub fn load(tokens_file: &Path, data_dir: &Path) -> Result<Self, AuthError> {
        let pepper: Arc<[u8]> = pepper(&data_dir.join("pepper"))?.into();
        let text = read(tokens_file)?;
        let malformed = |message: String| AuthError::Malformed {
            path: tokens_file.to_owned(),
            message,
        };
        let rows = rows::parse(&text).map_err(|found| malformed(shown(&found)))?;
        let mut identities = BTreeMap::new();
        for row in rows {
            let secret_file = relative_to(tokens_file, &row.secret_file);
            let secret = sound_secret(&secret_file)?;
            let identity = match (row.role, row.host) {
                (Role::Agent, Some(host)) => Identity::Agent { host },
                (Role::Agent, None) => {
                    return Err(malformed("a token of role agent needs a host".to_owned()));
                }
                (Role::Operator, _) => Identity::Operator {
                    name: row.name.unwrap_or_else(|| "operator".to_owned()),
                },
            };
            let name = identity.name();
            let twin = identities.insert(digest(&pepper, secret.as_bytes()), identity);
            if let Some(twin) = twin {
                let message = format!("{name} and {} have one secret", twin.name());
                return Err(malformed(message));
            }
        }
        Ok(Self {
            pepper,
            identities: Arc::new(identities),
        })
    }

    /// Digests and who they stand for, for the database's copy.
    pub fn entries(&self) -> impl Iterator<Item = (&TokenDigest, &Identity)> {
        self.identities.iter()
    }

    /// Who a request comes from.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` without a known bearer token.
    pub fn identify<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        let denied = || Status::unauthenticated("send a valid token: authorization: Bearer …");
        let header = request.metadata().get("authorization").ok_or_else(denied)?;
        let token = header
            .to_str()
            .ok()
            .and_then(|h| h.split_once(' '))
            // The scheme's name has no case (RFC 9110, 11.1).
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token)
            .ok_or_else(denied)?;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(denied());
        }
        let digest = digest(&self.pepper, token.trim().as_bytes());
        self.identities.get(&digest).cloned().ok_or_else(denied)
    }

    /// An operator's identity, or a refusal.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` or `PERMISSION_DENIED`.
    pub fn operator<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        match self.identify(request)? {
            operator @ Identity::Operator { .. } => Ok(operator),
            Identity::Agent { .. } => Err(Status::permission_denied(
                "an agent's token may only open the agent stream",
            )),
        }
    }

    /// The host of an agent's token, or a refusal.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` or `PERMISSION_DENIED`.
    pub fn agent<T>(&self, request: &Request<T>) -> Result<HostId, Status> {
        match self.identify(request)? {
            Identity::Agent { host } => Ok(host),
            Identity::Operator { .. } => Err(Status::permission_denied(
                "the agent stream needs an agent's token",
            )),
        }
    }
}

/// A secret that is long enough to be one; said aloud when others can read its file.
fn sound_secret(path: &Path) -> Result<String, AuthError> {
    use std::os::unix::fs::PermissionsExt as _;
    let secret = read(path)?.trim().to_owned();
    let malformed = |message: String| AuthError::Malformed {
        path: path.to_owned(),
        message,
    };
    if !(MIN_SECRET_BYTES..=MAX_TOKEN_BYTES).contains(&secret.len()) {
        return Err(malformed(format!(
            "a secret has {MIN_SECRET_BYTES} to {MAX_TOKEN_BYTES} bytes, this file has {}; `openssl rand -hex 32` makes one",
            secret.len()
        )));
    }
    if secret.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(malformed("a secret is one word on one line".to_owned()));
    }
    let mode = std::fs::metadata(path).map_or(0, |m| m.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "other accounts can read this secret; chmod 600");
    }
    Ok(secret)
}

fn relative_to(file: &Path, path: &Path) -> PathBuf {
    file.parent()
        .map_or_else(|| path.to_owned(), |folder| folder.join(path))
}

fn read(path: &Path) -> Result<String, AuthError> {
    std::fs::read_to_string(path).map_err(|source| AuthError::File {
        path: path.to_owned(),
        source,
    })
}

fn digest(pepper: &[u8], token: &[u8]) -> TokenDigest {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(pepper)
        .expect("invariant: HMAC takes keys of any length");
    mac.update(token);
    mac.finalize().into_bytes().into()
}

/// The key of the digests: 32 random bytes, readable by the server alone.
fn pepper(path: &Path) -> Result<Vec<u8>, AuthError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |source| AuthError::File {
        path: path.to_owned(),
        source,
    };
    match std::fs::read(path) {
        Ok(bytes) if bytes.len() == 32 => return Ok(bytes),
        Ok(_) => {
            let message = "must hold 32 bytes; delete it and issue new tokens".to_owned();
            return Err(AuthError::Malformed {
                path: path.to_owned(),
                message,
            });
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let mut bytes = vec![0u8; 32];
    getrandom::fill(&mut bytes).map_err(AuthError::Entropy)?;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    file.write_all(&bytes)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What loading a table of two secrets says.
    fn load(name: &str, secrets: [&str; 2]) -> Result<TokenTable, AuthError> {
        let folder = std::env::temp_dir().join(format!("koi-auth-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (i, secret) in secrets.iter().enumerate() {
            std::fs::write(folder.join(format!("secret{i}")), secret).unwrap();
        }
        let rows = "[[token]]\nrole = \"operator\"\nsecret_file = \"secret0\"\n\n[[token]]\nrole = \"agent\"\nhost = \"a\"\nsecret_file = \"secret1\"\n";
        std::fs::write(folder.join("tokens.toml"), rows).unwrap();
        let table = TokenTable::load(&folder.join("tokens.toml"), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        table
    }

    #[test]
    fn secrets_that_are_none_are_refused_by_file() {
        let good = "0123456789abcdef";
        assert_eq!(
            load("good", [good, "fedcba9876543210\n"])
                .unwrap()
                .entries()
                .count(),
            2
        );
        for (name, bad) in [
            ("empty", ""),
            ("short", "abc"),
            ("words", "two words are no secret"),
        ] {
            let error = load(name, [good, bad]).err().unwrap().to_string();
            assert!(error.contains("secret1"), "{error}");
        }
        let error = load("twins", [good, good]).err().unwrap().to_string();
        assert!(error.contains("one secret"), "{error}");
    }
}
