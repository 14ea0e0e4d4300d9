//! Answers: bodies with their media types, and errors with their status.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use bytes::Bytes;
use fairlane_config::NotGranted;
use fairlane_daemon::Error;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::change::{Refused, broken_by};
use crate::document::EditError;
use crate::reading::Content;

pub(super) const JSON: &str = "application/json";

pub(crate) type Answer = Response<Content>;

/// A failed request: its status, and one sentence.
#[derive(Debug)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

pub(super) type Result<T> = std::result::Result<T, Failure>;

pub(super) fn fail<T>(status: StatusCode, sentence: impl Into<String>) -> Result<T> {
    Err(Failure(status, sentence.into()))
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Failure {
        Refused::from(error).into()
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let status = match &refused {
            Refused::Edit(EditError::Missing(_)) => StatusCode::NOT_FOUND,
            Refused::Edit(EditError::Conflict(_)) => StatusCode::CONFLICT,
            Refused::Edit(EditError::Value(_)) => StatusCode::BAD_REQUEST,
            Refused::Site(Error::Outdated | Error::Conflict(_) | Error::Unsaved { .. }) => {
                StatusCode::CONFLICT
            }
            Refused::Site(Error::Missing(_)) => StatusCode::NOT_FOUND,
            Refused::Site(Error::Interface(reason)) => match reason.kind() {
                io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
                io::ErrorKind::ResourceBusy => StatusCode::CONFLICT,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            },
            Refused::Site(Error::Ended) => StatusCode::SERVICE_UNAVAILABLE,
            Refused::Site(_) if !broken_by(&refused).is_empty() => StatusCode::CONFLICT,
            Refused::Site(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::Precondition(_) => StatusCode::PRECONDITION_FAILED,
            Refused::NotGranted(NotGranted::NoLink(_)) => StatusCode::NOT_FOUND,
            Refused::NotGranted(NotGranted::Full { .. }) => StatusCode::CONFLICT,
            Refused::NotGranted(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::TooMany(_) => StatusCode::CONFLICT,
        };
        Failure(status, refused.to_string())
    }
}

/// Returns the entity tag of a configuration or an asset of the page.
pub(crate) fn tag(content: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Returns an error answer with one sentence.
pub(super) fn refusal(status: StatusCode, sentence: &str) -> Answer {
    text(status, JSON, json!({ "error": sentence }).to_string())
}

pub(super) fn object(value: &(impl Serialize + ?Sized)) -> Result<Answer> {
    match serde_json::to_string(value) {
        Ok(body) => Ok(text(StatusCode::OK, JSON, body)),
        Err(error) => fail(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(crate) fn text(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with(status, media_type, Content::Text(body.into()))
}

pub(super) fn with(status: StatusCode, media_type: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(CONTENT_TYPE, media_type);
    let sniffed = HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, sniffed);
    no_store(&mut answer);
    answer
}

pub(super) fn no_store(answer: &mut Answer) {
    let value = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, value);
}
