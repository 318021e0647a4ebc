//! Refusals in the shape of the OpenAI API.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::reply;

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("Unauthorized")]
    Unauthorized,
    #[error("Not Found")]
    NoRoute,
    #[error("The model `{0}` does not exist.")]
    NoModel(String),
    #[error("The request body is larger than the server reads.")]
    TooLarge,
    #[error("The server is shutting down.")]
    Draining,
    #[error("EngineCore encountered an issue. See stack trace (above) for the root cause.")]
    EngineDead,
}

impl ApiError {
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequestError"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "AuthenticationError"),
            Self::NoRoute | Self::NoModel(_) => (StatusCode::NOT_FOUND, "NotFoundError"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLargeError"),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError"),
            Self::EngineDead => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
        }
    }

    /// The body.
    pub(crate) fn body(&self) -> String {
        let (status, kind) = self.status();
        let param = if matches!(self, Self::NoModel(_)) {
            json!("model")
        } else {
            json!(null)
        };
        json!({"error": {
            "message": self.to_string(), "type": kind, "param": param, "code": status.as_u16(),
        }})
        .to_string()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        reply::json(self.status().0, self.body())
    }
}
