//! Malicious or broken servers during authentication and when the channel is opened.

use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::ssh::options::Prompter;

/// A user who responds to every prompt; records what is shown.
#[derive(Debug, Default)]
struct RespondingUser {
    prompts: Mutex<Vec<String>>,
    notices: Mutex<Vec<String>>,
}

impl RespondingUser {
    fn prompt_count(&self) -> usize {
        self.prompts.lock().unwrap().len()
    }

    fn respond(&self, prompt: &str) -> String {
        self.prompts.lock().unwrap().push(prompt.to_owned());
        "answer".to_owned()
    }
}

#[async_trait]
impl Prompter for RespondingUser {
    async fn secret(&self, prompt: &str) -> Result<Option<Secret>> {
        Ok(Some(Secret::new(self.respond(prompt))))
    }

    async fn visible(&self, prompt: &str) -> Result<Option<String>> {
        Ok(Some(self.respond(prompt)))
    }

    async fn notice(&self, text: &str) {
        self.notices.lock().unwrap().push(text.to_owned());
    }
}

async fn listen_to(user: Arc<RespondingUser>) -> (TcpListener, SshHost) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = SshOptions { password: None, ..options(&[]) };
    let port = Some(listener.local_addr().unwrap().port());
    (listener, SshHost::resolve(None, "127.0.0.1", port, &options, user).unwrap())
}

fn failure(methods: &str, partial: bool) -> Vec<u8> {
    let mut failure = vec![message::USERAUTH_FAILURE];
    failure.string(methods.as_bytes());
    failure.boolean(partial);
    failure
}

/// One prompt of keyboard-interactive.
fn prompt() -> Vec<u8> {
    let mut prompt = vec![message::USERAUTH_60];
    for words in ["", "", ""] {
        prompt.string(words.as_bytes());
    }
    prompt.u32(1);
    prompt.string(b"Password: ");
    prompt.boolean(false);
    prompt
}

/// Sends the same response to every authentication message, until the client closes the connection.
async fn always_respond(mut server: Server, response: Vec<u8>) {
    loop {
        let request = server.receive().await;
        if request[0] >= message::USERAUTH_REQUEST {
            server.send(&response).await;
        }
    }
}

/// Each response is a partial success that requires one more factor: the client must not prompt forever.
#[tokio::test]
async fn a_server_with_endless_partial_successes_is_an_error() {
    for method in ["password", "keyboard-interactive"] {
        let user = Arc::new(RespondingUser::default());
        let (listener, host) = listen_to(Arc::clone(&user)).await;
        let server = tokio::spawn(async move {
            let mut server = Server::accept(&listener).await;
            loop {
                let request = server.receive().await;
                if request[0] == message::USERAUTH_REQUEST && method == "keyboard-interactive" {
                    server.send(&prompt()).await;
                    server.receive_one(message::USERAUTH_INFO_RESPONSE).await;
                }
                if request[0] == message::USERAUTH_REQUEST {
                    server.send(&failure(method, true)).await;
                }
            }
        });
        let error = host.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        // NumberOfPasswordPrompts is 3. Keyboard-interactive is tried first; a server that wants a password
        // refuses that without a prompt.
        let prompts = user.prompt_count();
        assert!((3..=4).contains(&prompts), "{method}: {prompts}");
        server.abort();
    }
}

#[tokio::test]
async fn endless_prompts_are_an_error_even_with_cached_responses() {
    let user = Arc::new(RespondingUser::default());
    let (listener, host) = listen_to(Arc::clone(&user)).await;
    let server = tokio::spawn(async move {
        // The first connection is accepted after one prompt.
        let mut server = Server::accept(&listener).await;
        server.receive_one(message::USERAUTH_REQUEST).await;
        server.send(&prompt()).await;
        server.receive_one(message::USERAUTH_INFO_RESPONSE).await;
        server.send(&[message::USERAUTH_SUCCESS]).await;
        // The second one gets prompts without end.
        always_respond(Server::accept(&listener).await, prompt()).await;
    });
    let first = host.connect().await.unwrap();
    let prompts = user.prompt_count();
    let error = host.connect().await.unwrap_err();
    assert!(error.to_string().contains("too many prompts"), "{error}");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    // The cached responses were used: the user was not prompted again.
    assert_eq!(user.prompt_count(), prompts);
    server.abort();
    drop(first);
}

#[tokio::test]
async fn a_user_with_wrong_passwords_is_not_prompted_for_the_next_connection() {
    let user = Arc::new(RespondingUser::default());
    let (listener, host) = listen_to(Arc::clone(&user)).await;
    let server = tokio::spawn(async move {
        loop {
            let server = Server::accept(&listener).await;
            tokio::spawn(always_respond(server, failure("password", false)));
        }
    });
    for _ in 0..3 {
        let error = host.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    }
    assert_eq!(user.prompt_count(), 3);
    server.abort();
}

#[tokio::test]
async fn a_channel_with_a_maximum_packet_size_of_0_is_refused() {
    let (listener, host) = listen().await;
    let serving = async {
        let mut server = Server::let_in(&listener).await;
        assert_eq!(server.receive().await[0], message::CHANNEL_OPEN);
        let mut confirmation = to(message::CHANNEL_OPEN_CONFIRMATION, 0);
        for value in [0, 1 << 20, 0] {
            confirmation.u32(value);
        }
        server.send(&confirmation).await;
        server
    };
    let (opened, _server): (Opening, Server) =
        tokio::join!(host.connect_to("sftp", &hello), serving);
    let error = opened.unwrap_err();
    assert!(error.to_string().contains("maximum packet size of 0"), "{error}");
}

#[tokio::test]
async fn control_characters_in_prompts_are_escaped() {
    let user = Arc::new(RespondingUser::default());
    let (listener, host) = listen_to(Arc::clone(&user)).await;
    let mut prompts = vec![message::USERAUTH_60];
    for words in ["name\u{1b}[2J", "instruction\u{9b}2J", ""] {
        prompts.string(words.as_bytes());
    }
    prompts.u32(2);
    for (words, visible) in [("secret\u{1b}]0;owned\u{7}: ", false), ("\u{202e}visible: ", true)] {
        prompts.string(words.as_bytes());
        prompts.boolean(visible);
    }
    let server = tokio::spawn(async move {
        let mut server = Server::accept(&listener).await;
        server.receive_one(message::USERAUTH_REQUEST).await;
        server.send(&prompts).await;
        server.receive_one(message::USERAUTH_INFO_RESPONSE).await;
        server.send(&failure("keyboard-interactive", false)).await;
        // Keep the connection open until the client closes it.
        drop(server.stream.read_u8().await);
    });
    host.connect().await.unwrap_err();
    server.abort();
    assert_eq!(user.notices.lock().unwrap()[0], "name\\033[2J\ninstruction\\302\\2332J");
    let account = format!("({}@127.0.0.1)", host.user());
    let expected = ["secret\\033]0;owned\\007: ", "\\342\\200\\256visible: "];
    assert_eq!(*user.prompts.lock().unwrap(), expected.map(|prompt| format!("{account} {prompt}")));
}
