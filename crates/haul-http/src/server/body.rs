//! The body of a response.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::file_body::FileBody;
use super::visitor::RequestReport;

/// The body of a response. When it is dropped, the request is reported to the observer.
pub(super) struct Body {
    content: Content,
    report: Option<RequestReport>,
}

enum Content {
    Whole(Option<Bytes>),
    File(FileBody),
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

impl Body {
    /// An empty body.
    pub(super) fn empty() -> Self {
        Self { content: Content::Whole(None), report: None }
    }

    /// A text.
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        let bytes = Some(text.into()).filter(|bytes: &Bytes| !bytes.is_empty());
        Self { content: Content::Whole(bytes), report: None }
    }

    /// A range of a file.
    pub(super) fn file(file: FileBody) -> Self {
        Self { content: Content::File(file), report: None }
    }

    /// Bytes that are generated while they are sent.
    pub(super) fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { content: Content::Stream(Box::pin(pieces)), report: None }
    }

    /// Counts sent bytes in `report`.
    pub(super) fn counted(mut self, report: RequestReport) -> Self {
        self.report = Some(report);
        self
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = match &mut self.content {
            Content::Whole(bytes) => bytes.take().map(Ok),
            Content::File(file) => ready!(file.poll_block(context)),
            Content::Stream(pieces) => ready!(pieces.as_mut().poll_next(context)),
        };
        if let (Some(report), Some(Ok(bytes))) = (&self.report, &piece) {
            report.sent(bytes.len());
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::File(file) => file.left() == 0,
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::File(file) => SizeHint::with_exact(file.left()),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}
