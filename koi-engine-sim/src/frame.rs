//! What the API process and its EngineCore child say to each other over a Unix socket: frames of a
//! four-byte length, a kind byte and little-endian fields. All tokens of a step go in one frame.

use std::io::{self, Read};

use koi_sim::engine::{FinishReason, TokenEvent};
use koi_sim::metrics::EngineMetrics;
use koi_sim::prompt::TokenChain;
use serde::{Deserialize, Serialize};

/// Longest frame that is believed; the largest real one is a prompt of a million tokens.
pub(crate) const MAX_FRAME_BYTES: usize = 16 << 20;

/// A request on its way to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Submit {
    pub(crate) id: u64,
    /// Wall clock at which the API server got it.
    pub(crate) arrival_micros: i64,
    pub(crate) max_tokens: u32,
    pub(crate) natural_end: Option<u32>,
    pub(crate) answer_seed: u64,
    pub(crate) prompt: TokenChain,
}

/// From the API process to the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToCore {
    /// Queue a request.
    Submit(Box<Submit>),
    /// The client is gone.
    Cancel(u64),
    /// Answer with [`FromCore::Metrics`].
    ReadMetrics,
    /// Finish what is queued, then exit.
    Drain,
}

/// What the core knows once it is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadyFacts {
    pub(crate) max_model_len: u32,
    pub(crate) num_gpu_blocks: u32,
    pub(crate) kv_cache_bytes: u64,
}

/// From the core to the API process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FromCore {
    /// Start-up is over.
    Ready(ReadyFacts),
    /// The tokens of one step.
    Tokens(Vec<TokenEvent>),
    /// A request that the engine did not take.
    Rejected(u64),
    /// Counters now.
    Metrics(Box<EngineMetrics>),
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.extend(((body.len() + 1) as u32).to_le_bytes());
    bytes.push(kind);
    bytes.extend(body);
    bytes
}

impl ToCore {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Submit(submit) => {
                let mut body = Vec::with_capacity(48 + submit.prompt.links().len() * 8);
                body.extend(submit.id.to_le_bytes());
                body.extend(submit.arrival_micros.to_le_bytes());
                body.extend(submit.max_tokens.to_le_bytes());
                // An answer has at least one token, so 0 can stand for "no end of its own".
                body.extend(submit.natural_end.unwrap_or(0).to_le_bytes());
                body.extend(submit.answer_seed.to_le_bytes());
                body.extend(submit.prompt.tokens().to_le_bytes());
                body.extend(submit.prompt.block_size().to_le_bytes());
                body.extend(submit.prompt.state().to_le_bytes());
                for link in submit.prompt.links() {
                    body.extend(link.to_le_bytes());
                }
                frame(1, &body)
            }
            Self::Cancel(id) => frame(2, &id.to_le_bytes()),
            Self::ReadMetrics => frame(3, &[]),
            Self::Drain => frame(4, &[]),
        }
    }

    /// Reads the bytes after the length; `None` when they are no frame.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, body) = bytes.split_first()?;
        let mut fields = Fields(body);
        match kind {
            1 => {
                let id = fields.u64()?;
                let arrival_micros = fields.u64()? as i64;
                let (max_tokens, natural_end) = (fields.u32()?, fields.u32()?);
                let answer_seed = fields.u64()?;
                let (tokens, block_size, state) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let links = std::iter::from_fn(|| fields.u64()).collect();
                let prompt = TokenChain::from_parts(tokens, block_size, state, links)?;
                let natural_end = (natural_end > 0).then_some(natural_end);
                Some(Self::Submit(Box::new(Submit {
                    id,
                    arrival_micros,
                    max_tokens,
                    natural_end,
                    answer_seed,
                    prompt,
                })))
            }
            2 => Some(Self::Cancel(fields.u64()?)),
            3 => Some(Self::ReadMetrics),
            4 => Some(Self::Drain),
            _ => None,
        }
    }
}

impl FromCore {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready(facts) => frame(1, &serde_json::to_vec(facts).unwrap_or_default()),
            Self::Tokens(events) => {
                let mut body = Vec::with_capacity(events.len() * 17);
                for event in events {
                    body.extend(event.id.to_le_bytes());
                    body.extend(event.position.to_le_bytes());
                    body.extend(event.cached_prompt_tokens.to_le_bytes());
                    body.push(match event.finish {
                        None => 0,
                        Some(FinishReason::Stop) => 1,
                        Some(FinishReason::Length) => 2,
                    });
                }
                frame(2, &body)
            }
            Self::Rejected(id) => frame(3, &id.to_le_bytes()),
            Self::Metrics(metrics) => frame(4, &serde_json::to_vec(metrics).unwrap_or_default()),
        }
    }

    /// Reads the bytes after the length; `None` when they are no frame.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, body) = bytes.split_first()?;
        match kind {
            1 => serde_json::from_slice(body).ok().map(Self::Ready),
            2 => body
                .chunks(17)
                .map(decode_event)
                .collect::<Option<_>>()
                .map(Self::Tokens),
            3 => Some(Self::Rejected(Fields(body).u64()?)),
            4 => serde_json::from_slice(body).ok().map(Self::Metrics),
            _ => None,
        }
    }
}

fn decode_event(bytes: &[u8]) -> Option<TokenEvent> {
    let mut fields = Fields(bytes);
    Some(TokenEvent {
        id: fields.u64()?,
        position: fields.u32()?,
        cached_prompt_tokens: fields.u32()?,
        finish: match fields.0 {
            [0] => None,
            [1] => Some(FinishReason::Stop),
            [2] => Some(FinishReason::Length),
            _ => return None,
        },
    })
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*head))
    }

    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }
}

/// Reads one frame's bytes from a blocking stream; `None` at its end.
pub(crate) fn read_frame(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0_u8; 4];
    if let Err(error) = stream.read_exact(&mut length) {
        let ended = error.kind() == io::ErrorKind::UnexpectedEof;
        return if ended { Ok(None) } else { Err(error) };
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let submit = Submit {
            id: 7,
            arrival_micros: -5,
            max_tokens: 9,
            natural_end: None,
            answer_seed: u64::MAX,
            prompt: TokenChain::synthetic((1, 30), (2, 30), 16),
        };
        for message in [
            ToCore::Submit(Box::new(submit.clone())),
            ToCore::Submit(Box::new(Submit {
                natural_end: Some(3),
                ..submit
            })),
            ToCore::Cancel(3),
            ToCore::ReadMetrics,
            ToCore::Drain,
        ] {
            let bytes = message.encode();
            let body = read_frame(&mut bytes.as_slice()).unwrap().unwrap();
            assert_eq!(ToCore::decode(&body), Some(message));
        }
        let event = |finish| TokenEvent {
            id: 1,
            position: 2,
            cached_prompt_tokens: 3,
            finish,
        };
        for message in [
            FromCore::Tokens(vec![event(None), event(Some(FinishReason::Stop))]),
            FromCore::Rejected(4),
            FromCore::Ready(ReadyFacts {
                max_model_len: 1,
                num_gpu_blocks: 2,
                kv_cache_bytes: 3,
            }),
            FromCore::Metrics(Box::new(EngineMetrics::new(512))),
        ] {
            assert_eq!(FromCore::decode(&message.encode()[4..]), Some(message));
        }
    }

    #[test]
    fn broken_frames_are_refused() {
        for bytes in [&[][..], &[9], &[1, 2, 3], &[2, 1]] {
            assert_eq!(ToCore::decode(bytes), None);
        }
        assert_eq!(FromCore::decode(&[2, 1, 2]), None);
        assert!(read_frame(&mut &[255_u8, 255, 255, 255][..]).is_err());
        assert!(read_frame(&mut &[1_u8][..]).unwrap().is_none());
    }
}
