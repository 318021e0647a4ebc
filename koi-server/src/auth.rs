//! Who may connect: bearer tokens, kept as keyed digests. The host of an agent comes from its
//! token, never from a message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, Mac};
use koi_core::ids::HostId;
use serde::Deserialize;
use sha2::Sha256;
use tonic::{Request, Status};

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    #[serde(default)]
    token: Vec<TokenRow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRow {
    role: Role,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    host: Option<HostId>,
    secret_file: PathBuf,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
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
        let file: TokensFile = toml::from_str(&text).map_err(|e| malformed(e.to_string()))?;
        let mut identities = BTreeMap::new();
        for row in file.token {
            let secret = read(&relative_to(tokens_file, &row.secret_file))?;
            let identity = match (row.role, row.host) {
                (Role::Agent, Some(host)) => Identity::Agent { host },
                (Role::Agent, None) => {
                    return Err(malformed("a token of role agent needs a host".to_owned()));
                }
                (Role::Operator, _) => Identity::Operator {
                    name: row.name.unwrap_or_else(|| "operator".to_owned()),
                },
            };
            identities.insert(digest(&pepper, secret.trim().as_bytes()), identity);
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
            .and_then(|h| h.strip_prefix("Bearer "))
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
