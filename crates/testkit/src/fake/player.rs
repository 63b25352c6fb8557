//! Runs one script.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::sync::{mpsc, watch};

use super::{Control, Record, RequestEnd};
use crate::lock;
use crate::script::Step;

/// The state of the response.
enum Answer {
    Before(SendResponse<Bytes>),
    Begun(SendStream<Bytes>),
}

/// Why a script ends early.
enum Stop {
    Reset(Reason),
    Lost,
    Done,
}

impl From<h2::Error> for Stop {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(reason) if error.is_reset() => Self::Reset(reason),
            _ => Self::Lost,
        }
    }
}

impl Answer {
    fn poll_reset(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<Reason, h2::Error>> {
        match self {
            Self::Before(respond) => respond.poll_reset(cx),
            Self::Begun(stream) => stream.poll_reset(cx),
        }
    }

    /// Waits, unless the stream is reset first.
    async fn wait(&mut self, waiting: impl Future<Output = ()>) -> Result<(), Stop> {
        tokio::select! {
            () = waiting => Ok(()),
            reset = poll_fn(|cx| self.poll_reset(cx)) => Err(match reset {
                Ok(reason) => Stop::Reset(reason),
                Err(error) => error.into(),
            }),
        }
    }

    fn head(&mut self, status: u16, headers: HeaderMap, end: bool) -> Result<(), Stop> {
        let Self::Before(respond) = self else {
            panic!("a second head");
        };
        let mut response = Response::new(());
        *response.status_mut() = status.try_into().expect("http status");
        *response.headers_mut() = headers;
        *self = Self::Begun(respond.send_response(response, end)?);
        Ok(())
    }

    fn stream(&mut self) -> &mut SendStream<Bytes> {
        match self {
            Self::Begun(stream) => stream,
            Self::Before(_) => panic!("data before the head"),
        }
    }

    async fn data(&mut self, mut data: Bytes, record: &Record) -> Result<(), Stop> {
        let stream = self.stream();
        if data.is_empty() {
            stream.send_data(data, false)?;
            return Ok(());
        }
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(room) => {
                    let piece = data.split_to(room?.min(data.len()));
                    let len = piece.len();
                    stream.send_data(piece, false)?;
                    lock(record).sent += len;
                }
                None => {
                    let reset = poll_fn(|cx| stream.poll_reset(cx)).await;
                    return Err(Stop::Reset(reset?));
                }
            }
        }
        Ok(())
    }
}

/// Runs the steps while reading the request into its record.
pub(super) async fn play(
    steps: Vec<Step>,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    record: Record,
    control: mpsc::Sender<Control>,
) {
    let (all, is_all) = watch::channel(false);
    let reading = {
        let record = Arc::clone(&record);
        tokio::spawn(async move {
            read(body, &record).await;
            let _ = all.send(true);
        })
    };
    let mut answer = Answer::Before(respond);
    for step in steps {
        match play_one(step, &mut answer, is_all.clone(), &record, &control).await {
            Ok(()) => {}
            Err(Stop::Reset(reason)) => {
                lock(&record).reset = Some(reason);
                break;
            }
            Err(Stop::Lost | Stop::Done) => break,
        }
    }
    lock(&record).done = true;
    // Read the request to its end even if the script ends first.
    let _ = reading.await;
}

async fn play_one(
    step: Step,
    answer: &mut Answer,
    mut is_all: watch::Receiver<bool>,
    record: &Record,
    control: &mpsc::Sender<Control>,
) -> Result<(), Stop> {
    // The connection may be closed already.
    let tell = |what| {
        let _ = control.try_send(what);
    };
    match step {
        Step::Read => {
            let all = async {
                let _ = is_all.wait_for(|all| *all).await;
            };
            answer.wait(all).await?;
        }
        Step::Head(status, headers) => answer.head(status, headers, false)?,
        Step::HeadOnly(status, headers) => answer.head(status, headers, true)?,
        Step::Data(data) => answer.data(data, record).await?,
        Step::Trailers(trailers) => answer.stream().send_trailers(trailers)?,
        Step::End => answer.stream().send_data(Bytes::new(), true)?,
        Step::Wait(gate) => answer.wait(gate.cancelled()).await?,
        Step::Reset(reason) => {
            match answer {
                Answer::Before(respond) => respond.send_reset(reason),
                Answer::Begun(stream) => stream.send_reset(reason),
            }
            return Err(Stop::Done);
        }
        Step::Close => {
            tell(Control::Close);
            answer.wait(std::future::pending()).await?;
        }
        Step::GoAway => tell(Control::GoAway),
        Step::Abort(reason) => {
            tell(Control::Abort(reason));
            answer.wait(std::future::pending()).await?;
        }
        Step::Hang => answer.wait(std::future::pending()).await?,
    }
    Ok(())
}

async fn read(mut body: RecvStream, record: &Record) {
    let end = loop {
        match body.data().await {
            Some(Ok(data)) => {
                let _ = body.flow_control().release_capacity(data.len());
                lock(record).body.extend_from_slice(&data);
            }
            Some(Err(error)) => break ended(&error),
            None => match body.trailers().await {
                Ok(Some(trailers)) => break RequestEnd::Trailers(trailers),
                Ok(None) => break RequestEnd::EndStream,
                Err(error) => break ended(&error),
            },
        }
    };
    lock(record).end = end;
}

fn ended(error: &h2::Error) -> RequestEnd {
    match error.reason() {
        Some(reason) if error.is_reset() => RequestEnd::Reset(reason),
        _ => RequestEnd::Lost,
    }
}
