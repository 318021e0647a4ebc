//! The decoder architectures whose parameter and cache arithmetic is written down here.
//!
//! Not an approximation of anything else: a `model_type` without a row is refused by name. A row is
//! a [`Spec`], data about what the architecture's code says beyond its config.json. Spec §2.
//!
//! To add one: a row in the file of its family, a line in the list below, and a config with its
//! published total in `tests/further.json`.

mod dense;
mod hybrid;
mod older;
mod routed;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::spec::Spec;

macro_rules! architectures {
    ($($(#[$doc:meta])* $variant:ident = $spec:path,)+) => {
        /// A decoder architecture whose parameter and KV arithmetic is exact here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Architecture {
            $($(#[$doc])* $variant,)+
        }

        impl Architecture {
            /// Every supported architecture.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub(super) const fn spec(self) -> &'static Spec {
                match self {
                    $(Self::$variant => &$spec,)+
                }
            }
        }
    };
}

architectures! {
    /// Llama 1, 2, 3, Code Llama, Yi, Aquila and everything of the same shape.
    Llama = dense::LLAMA,
    /// Mistral and the text part of Mistral 3 and Pixtral.
    Mistral = dense::MISTRAL,
    /// Qwen1.5, Qwen2, Qwen2.5 and the text part of their vision models.
    Qwen2 = dense::QWEN2,
    /// Qwen3 dense and the text part of its vision models.
    Qwen3 = dense::QWEN3,
    /// Phi-3, Phi-3.5-mini and Phi-4.
    Phi3 = dense::PHI3,
    /// InternLM2.
    InternLm2 = dense::INTERNLM2,
    /// Baichuan 1 and 2.
    Baichuan = dense::BAICHUAN,
    /// StableLM 3B and its kin.
    StableLm = dense::STABLELM,
    /// StarCoder2.
    Starcoder2 = dense::STARCODER2,
    /// OLMo 2.
    Olmo2 = dense::OLMO2,
    /// OLMo 3.
    Olmo3 = dense::OLMO3,
    /// SmolLM3.
    SmolLm3 = dense::SMOLLM3,
    /// ERNIE 4.5 dense.
    Ernie45 = dense::ERNIE4_5,
    /// Cohere Command R and Aya 23.
    Cohere = dense::COHERE,
    /// Cohere Command R7B and Command A.
    Cohere2 = dense::COHERE2,
    /// Gemma 1.
    Gemma = dense::GEMMA,
    /// Gemma 2.
    Gemma2 = dense::GEMMA2,
    /// Gemma 3, text part.
    Gemma3 = dense::GEMMA3,
    /// Granite 3 dense.
    Granite = dense::GRANITE,
    /// GLM-4 9B in its `transformers` form.
    Glm = dense::GLM,
    /// GLM-4 0414 dense.
    Glm4 = dense::GLM4,
    /// Seed-OSS.
    SeedOss = dense::SEED_OSS,
    /// DeciLM and Llama-Nemotron: heads or widths that differ by layer.
    Deci = dense::DECI,
    /// OPT.
    Opt = older::OPT,
    /// GPT-J.
    GptJ = older::GPTJ,
    /// GPT-2.
    Gpt2 = older::GPT2,
    /// StarCoder and SantaCoder.
    GptBigCode = older::GPT_BIGCODE,
    /// GPT-NeoX and Pythia.
    GptNeoX = older::GPT_NEOX,
    /// Phi-1, Phi-1.5 and Phi-2.
    Phi = older::PHI,
    /// Falcon 7B, 40B and 180B.
    Falcon = older::FALCON,
    /// MPT.
    Mpt = older::MPT,
    /// BLOOM.
    Bloom = older::BLOOM,
    /// ChatGLM2, ChatGLM3 and GLM-4 9B.
    ChatGlm = older::CHATGLM,
    /// Mixtral: every layer routed.
    Mixtral = routed::MIXTRAL,
    /// Qwen1.5-MoE and Qwen2-MoE: routed layers with a shared expert.
    Qwen2Moe = routed::QWEN2_MOE,
    /// Qwen3-MoE and the text part of its vision models.
    Qwen3Moe = routed::QWEN3_MOE,
    /// MiniCPM, dense and MoE.
    MiniCpm = routed::MINICPM,
    /// OLMoE.
    Olmoe = routed::OLMOE,
    /// Phi-3.5-MoE.
    PhiMoe = routed::PHIMOE,
    /// Granite 3 MoE.
    GraniteMoe = routed::GRANITE_MOE,
    /// DeepSeek MoE 16B.
    Deepseek = routed::DEEPSEEK,
    /// DeepSeek V2 and V2-Lite.
    DeepseekV2 = routed::DEEPSEEK_V2,
    /// DeepSeek V3, R1 and Kimi K2.
    DeepseekV3 = routed::DEEPSEEK_V3,
    /// DeepSeek V3.2: latent attention with an index.
    DeepseekV32 = routed::DEEPSEEK_V32,
    /// GLM-5: latent attention with an index.
    GlmMoeDsa = routed::GLM_MOE_DSA,
    /// GLM-4.5, GLM-4.5-Air, GLM-4.6 and GLM-4.7.
    Glm4Moe = routed::GLM4_MOE,
    /// Llama 4, text part.
    Llama4 = routed::LLAMA4,
    /// gpt-oss.
    GptOss = routed::GPT_OSS,
    /// MiniMax M2 and M2.5.
    MiniMaxM2 = routed::MINIMAX_M2,
    /// Gemma 4, text part.
    Gemma4 = routed::GEMMA4,
    /// Qwen3-Next.
    Qwen3Next = hybrid::QWEN3_NEXT,
    /// Qwen3.5 dense, text part.
    Qwen35 = hybrid::QWEN3_5,
    /// Qwen3.5-MoE, text part.
    Qwen35Moe = hybrid::QWEN3_5_MOE,
    /// Nemotron-H: Mamba-2, attention and MLP layers.
    NemotronH = hybrid::NEMOTRON_H,
    /// Bamba: Mamba-2 and attention layers.
    Bamba = hybrid::BAMBA,
    /// Granite 4 hybrids: Mamba-2 and attention layers, all routed.
    GraniteMoeHybrid = hybrid::GRANITE_MOE_HYBRID,
    /// Jamba: Mamba and attention layers, some routed.
    Jamba = hybrid::JAMBA,
}

impl Architecture {
    /// The `model_type` in config.json.
    #[must_use]
    pub fn model_type(self) -> &'static str {
        self.spec().model_types.first().copied().unwrap_or_default()
    }

    /// The architecture of this `model_type`.
    #[must_use]
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|a| a.spec().model_types.contains(&model_type))
    }
}

impl Serialize for Architecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.model_type())
    }
}

impl<'de> Deserialize<'de> for Architecture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::from_model_type(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("unknown architecture {name:?}")))
    }
}
