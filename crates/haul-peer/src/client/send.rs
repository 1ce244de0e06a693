//! Sends requests on a lane.

use haul_storage::Result;

use super::lane::Lane;
use super::session::{Responses, frame, lane_lost};
use crate::wire::message_frame;
use crate::wire::messages::{self, to_server};

/// Sends a request on a lane.
pub(super) fn send_on(lane: &Lane, body: to_server::Body) -> Result<Responses> {
    send_notices(lane);
    let responses = lane.session.register(lane.number, &body);
    let sent = frame(responses.id, body).map(|message| lane.send(message));
    if !matches!(sent, Ok(true)) || lane.is_ended() {
        // A lane that has ended just now may not have sent the request.
        lane.session.forget(responses.id);
        sent?;
        return Err(lane.session.goodbye().unwrap_or_else(lane_lost));
    }
    Ok(responses)
}

/// Sends the notices to the server. Those that may be lost with the lane are sent again on another one.
pub(super) fn send_notices(lane: &Lane) {
    let _turn = lane.session.notices_turn();
    for notice in lane.session.take_notices() {
        // No notice is too long for a frame.
        let Ok(message) = message_frame(&notice) else { continue };
        let id = notice.id;
        lane.session.register_notice(lane.number, notice);
        if !lane.send(message) || lane.is_ended() {
            lane.session.requeue(id);
        }
    }
}

/// Cancels a request that may be executed twice, such as a read (see `Body::is_once` for the others).
pub(super) fn cancel(lane: &Lane, id: u32) {
    let cancel = messages::Cancel { id, once: false };
    lane.session.notice(to_server::Body::Cancel(cancel));
    if !lane.is_ended() {
        send_notices(lane);
    }
}

/// Forgets a request that may be executed twice when its caller stops waiting for responses, and cancels it if some are
/// due: its caller may repeat it, and the server would still hash the file for the first one.
pub(super) struct Forget<'a>(pub(super) &'a Lane, pub(super) u32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if self.0.session.forget(self.1) {
            cancel(self.0, self.1);
        }
    }
}
