/*
 * An SSH server made of libssh, for a test. Its SFTP subsystem is OpenSSH's sftp-server behind the channel.
 *
 * Usage: server REKEY_BYTES SFTP_SERVER (0: libssh's own limit). Prints its port and its line of known_hosts,
 * then serves any user with any password, each connection in a process of its own, until it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct session {
    ssh_channel channel;
    const char *program;
    int authenticated;
    pid_t child;
    int to_child;
    int from_child;
    int watched;
    ssh_event event;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int password(ssh_session session, const char *user, const char *given, void *data)
{
    (void)session, (void)user, (void)given;
    ((struct session *)data)->authenticated = 1;
    return SSH_AUTH_SUCCESS;
}

/* What libssh does not take into the child is kept by it and offered again. */
static int received(ssh_session session, ssh_channel channel, void *bytes, uint32_t length, int is_stderr,
                    void *data)
{
    struct session *state = data;
    ssize_t written;
    (void)session, (void)channel, (void)is_stderr;
    if (state->to_child < 0)
        return 0;
    written = write(state->to_child, bytes, length);
    return written < 0 ? 0 : (int)written;
}

static void ended(ssh_session session, ssh_channel channel, void *data)
{
    struct session *state = data;
    (void)session, (void)channel;
    if (state->to_child >= 0)
        close(state->to_child);
    state->to_child = -1;
}

static int subsystem(ssh_session session, ssh_channel channel, const char *name, void *data)
{
    struct session *state = data;
    int in[2], out[2];
    (void)session, (void)channel;
    if (strcmp(name, "sftp") != 0 || state->child != 0)
        return SSH_ERROR;
    if (pipe(in) < 0 || pipe(out) < 0)
        fail("pipe");
    state->child = fork();
    if (state->child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execl(state->program, state->program, "-e", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    state->to_child = in[1];
    state->from_child = out[0];
    return SSH_OK;
}

static struct ssh_channel_callbacks_struct on_channel = {
    .channel_data_function = received,
    .channel_eof_function = ended,
    .channel_close_function = ended,
    .channel_subsystem_request_function = subsystem,
};

static ssh_channel opened(ssh_session session, void *data)
{
    struct session *state = data;
    state->channel = ssh_channel_new(session);
    on_channel.userdata = data;
    ssh_callbacks_init(&on_channel);
    ssh_set_channel_callbacks(state->channel, &on_channel);
    return state->channel;
}

/* The child has bytes for the client. */
static int produced(socket_t fd, int events, void *data)
{
    struct session *state = data;
    char bytes[32768];
    ssize_t length;
    if ((events & (POLLIN | POLLHUP)) == 0)
        return 0;
    length = read(fd, bytes, sizeof bytes);
    if (length > 0)
        /* It waits until the window has room for all of it. */
        return ssh_channel_write(state->channel, bytes, (uint32_t)length) < 0 ? -1 : 0;
    ssh_event_remove_fd(state->event, fd);
    close(fd);
    state->from_child = -1;
    ssh_channel_request_send_exit_status(state->channel, 0);
    ssh_channel_send_eof(state->channel);
    ssh_channel_close(state->channel);
    return 0;
}

static void serve(ssh_session session, uint64_t limit, const char *program)
{
    struct session state = {.program = program, .to_child = -1, .from_child = -1};
    struct ssh_server_callbacks_struct on_session = {
        .userdata = &state,
        .auth_password_function = password,
        .channel_open_request_session_function = opened,
    };
    ssh_callbacks_init(&on_session);
    ssh_set_server_callbacks(session, &on_session);
    ssh_set_auth_methods(session, SSH_AUTH_METHOD_PASSWORD);
    if (limit != 0 && ssh_options_set(session, SSH_OPTIONS_REKEY_DATA, &limit) != SSH_OK)
        exit(1);
    if (ssh_handle_key_exchange(session) != SSH_OK) {
        fprintf(stderr, "key exchange: %s\n", ssh_get_error(session));
        exit(1);
    }
    state.event = ssh_event_new();
    ssh_event_add_session(state.event, session);
    while (ssh_event_dopoll(state.event, -1) != SSH_ERROR) {
        if (state.from_child >= 0 && !state.watched) {
            state.watched = 1;
            ssh_event_add_fd(state.event, state.from_child, POLLIN, produced, &state);
        }
        if (state.channel != NULL && ssh_channel_is_closed(state.channel))
            break;
    }
    exit(0);
}

int main(int count, char **arguments)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    uint64_t limit;
    ssh_bind bind_to = ssh_bind_new();
    ssh_key key;
    char *text;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (count != 3)
        return 2;
    limit = strtoull(arguments[1], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    if (ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key) != SSH_OK)
        return 1;
    ssh_pki_export_pubkey_base64(key, &text);
    ssh_bind_options_set(bind_to, SSH_BIND_OPTIONS_IMPORT_KEY, key);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 16) < 0)
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d [127.0.0.1]:%d ssh-ed25519 %s\n", ntohs(address.sin_port), ntohs(address.sin_port), text);
    fflush(stdout);
    for (;;) {
        int stream = accept(listener, NULL, NULL);
        if (stream < 0) {
            if (errno == EINTR)
                continue;
            fail("accept");
        }
        if (fork() == 0) {
            ssh_session session = ssh_new();
            close(listener);
            signal(SIGCHLD, SIG_DFL);
            if (ssh_bind_accept_fd(bind_to, session, stream) != SSH_OK)
                return 1;
            serve(session, limit, arguments[2]);
        }
        close(stream);
    }
}
