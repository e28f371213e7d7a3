//! The serving side, inside the event loop.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lasthop_kernel::accept::{self, Accepted, Pauses};
use lasthop_kernel::reactor::{Interest, Readiness};
use lasthop_kernel::slab::{Key, Slab};
use lasthop_kernel::tcp::{self, Moved, Socket};
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::Time;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::request::{Answer, LINE_MAX, Line, Request};

/// Clients at once; one more is turned away.
pub(super) const CLIENTS_MAX: usize = 16;
/// How long a client may take to say what it wants.
pub(super) const ASKING: Duration = Duration::from_secs(1);
/// How long a client may take to read the answer.
pub(super) const READING: Duration = Duration::from_secs(5);
/// How soon it is looked again whether another process still serves the path, and how late at most.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// What one read takes.
const PIECE: usize = 1024;

/// How far the conversation with a client is.
enum RequestStage {
    /// The client sends its request; this much has come.
    Asking(Vec<u8>),
    /// The process thinks about it.
    Waiting,
    /// The client reads the answer, of which so much is sent.
    Reading { answer: Vec<u8>, sent: usize },
}

struct Client {
    socket: Socket,
    stage: RequestStage,
    /// When it will have had its time.
    deadline: Time,
}

/// A socket that is served.
struct Listener {
    fd: OwnedFd,
    /// Device and number of its file.
    file: (u64, u64),
}

/// Serves the socket.
pub struct Control {
    /// Absent while another process serves the path.
    listener: Option<Listener>,
    /// When to look again whether the other process is gone, and how long that was waited for.
    retry: Option<(Time, Duration)>,
    pauses: Pauses,
    /// When those who wait can be accepted again.
    accept_at: Option<Time>,
    path: PathBuf,
    clients: Slab<Client>,
    requests: VecDeque<(Key, Request)>,
}

impl Listener {
    /// Listens on `path`; nothing while another process does.
    fn bind(path: &Path) -> io::Result<Option<Self>> {
        let address = SocketAddrUnix::new(path)?;
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Ok(None);
        }
        if let Some(dir) = path.parent()
            && !dir.exists()
        {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let is_socket = |path: &Path| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        };
        if is_socket(path) {
            std::fs::remove_file(path)?;
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file takes the mode that the socket has when it is bound.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&fd, &address)?;
        rustix::net::listen(&fd, CLIENTS_MAX as i32)?;
        Ok(Some(Self { fd, file: file_of(path)? }))
    }
}

impl Control {
    /// Listens on `path`, which only this user can open. A socket that nobody serves any more is
    /// replaced; one that another process serves is waited for, since that process may be this one's
    /// forerunner, which winds down.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = Listener::bind(path)?;
        if listener.is_none() {
            tracing::warn!(
                path = %path.display(),
                "another process serves the control socket: waiting until it ends"
            );
        }
        let (path, clients, requests) = (path.to_owned(), Slab::new(), VecDeque::new());
        Ok(Self {
            listener,
            retry: None,
            pauses: Pauses::default(),
            accept_at: None,
            path,
            clients,
            requests,
        })
    }

    /// Watches for clients, or for the end of the process that serves them.
    pub fn watch(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        match &self.listener {
            Some(listener) => {
                turn.reactor.add(&listener.fd, Interest::Read, Source::Control(None))?;
            }
            None => self.retry = Some((turn.now + RETRY_MIN, RETRY_MIN)),
        }
        Ok(())
    }

    /// Tries again to listen, if it is time.
    fn retry(&mut self, turn: &mut Turn<'_>) {
        let Some((_, waited)) = self.retry.take_if(|(at, _)| *at <= turn.now) else { return };
        let path = self.path.display().to_string();
        let watched = Listener::bind(&self.path).and_then(|listener| {
            self.listener = listener;
            self.watch(turn)
        });
        match (watched, &self.listener) {
            (Ok(()), Some(_)) => tracing::info!(path, "serving the control socket"),
            (Ok(()), None) => {
                let wait = (waited * 2).min(RETRY_MAX);
                self.retry = Some((turn.now + wait, wait));
            }
            (Err(error), _) => {
                tracing::warn!(path, %error, "no control socket: trying again");
                self.listener = None;
                self.retry = Some((turn.now + RETRY_MAX, RETRY_MAX));
            }
        }
    }

    /// Somebody connects.
    pub fn handle_listener(&mut self, turn: &mut Turn<'_>) {
        let last = accept::share(|| {
            let Some(listener) = &self.listener else { return Accepted::Empty };
            accept::accept(&listener.fd).map(|(fd, _)| self.attend(turn, fd))
        });
        self.accept_at = self.pauses.next(turn.now, last);
    }

    /// Lets who has connected ask.
    fn attend(&mut self, turn: &mut Turn<'_>, fd: OwnedFd) {
        if self.clients.len() >= CLIENTS_MAX {
            let why = "too many ask at once; try again";
            // It fits into an empty socket's buffer, or the client knows by the end alone.
            let _ = tcp::write(&fd, &line(&Err(why.to_owned())));
            return;
        }
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(turn.reactor, fd, Source::Control(None)) else { return };
        let token = socket.token;
        let deadline = turn.now + ASKING;
        let stage = RequestStage::Asking(Vec::new());
        let key = self.clients.insert(Client { socket, stage, deadline });
        turn.reactor.reassign(token, Source::Control(Some(key)));
    }

    /// A client can be read from or written to.
    pub fn handle_client(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let Some(client) = self.clients.get_mut(key) else { return };
        client.socket.ready(readiness);
        if matches!(client.stage, RequestStage::Asking(_)) {
            self.listen_to(turn, key);
        } else {
            self.talk_to(turn, key);
        }
    }

    /// What a client wants; each is to be [answered](Self::answer).
    pub fn poll_request(&mut self) -> Option<(Key, Request)> {
        self.requests.pop_front()
    }

    /// Answers a request.
    pub fn answer(&mut self, turn: &mut Turn<'_>, key: Key, answer: &Answer) {
        let Some(client) = self.clients.get_mut(key) else { return };
        client.stage = RequestStage::Reading { answer: line(answer), sent: 0 };
        client.deadline = turn.now + READING;
        self.talk_to(turn, key);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let retry = self.retry.map(|(at, _)| at);
        let clients = self.clients.iter().map(|(_, client)| client.deadline);
        clients.chain(retry).chain(self.accept_at).min()
    }

    /// Tells clients that were too slow so, or ends with them; and listens once it can.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.retry(turn);
        if self.accept_at.take_if(|at| *at <= turn.now).is_some() {
            self.handle_listener(turn);
        }
        for key in self.clients.keys() {
            let Some(client) = self.clients.get(key) else { continue };
            if client.deadline > turn.now {
                continue;
            }
            match &client.stage {
                RequestStage::Asking(_) => {
                    let why = "no request came within a second";
                    self.answer(turn, key, &Err(why.to_owned()));
                }
                RequestStage::Waiting | RequestStage::Reading { .. } => self.end(turn, key),
            }
        }
    }

    fn listen_to(&mut self, turn: &mut Turn<'_>, key: Key) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let RequestStage::Asking(said) = &mut client.stage else { return };
        let mut piece = [0; PIECE];
        let request = loop {
            match client.socket.read(&mut piece) {
                Moved::Bytes(n) => {
                    said.extend_from_slice(piece.get(..n).unwrap_or_default());
                    if let Some(end) = said.iter().position(|byte| *byte == b'\n') {
                        break whole(said, end);
                    }
                    if said.len() > LINE_MAX {
                        break Request::parse(said);
                    }
                }
                Moved::Blocked => return,
                // It looked whether somebody is here.
                Moved::End if said.is_empty() => return self.end(turn, key),
                Moved::End => break Request::parse(said),
                Moved::Broken(_) => return self.end(turn, key),
            }
        };
        match request {
            Ok(request) => {
                client.stage = RequestStage::Waiting;
                // There is one request a client, so there are no more than clients.
                self.requests.push_back((key, request));
            }
            Err(why) => self.answer(turn, key, &Err(why)),
        }
    }

    fn talk_to(&mut self, turn: &mut Turn<'_>, key: Key) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let RequestStage::Reading { answer, sent } = &mut client.stage else { return };
        loop {
            let rest = answer.get(*sent..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            match client.socket.write(rest) {
                Moved::Bytes(n) => *sent += n,
                Moved::Blocked => return,
                Moved::End | Moved::Broken(_) => break,
            }
        }
        self.end(turn, key);
    }

    fn end(&mut self, turn: &mut Turn<'_>, key: Key) {
        if let Some(client) = self.clients.remove(key) {
            client.socket.close(turn.reactor, false);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Another process may have put its own there meanwhile.
        let own = self.listener.as_ref().map(|listener| listener.file);
        if own.is_some() && file_of(&self.path).ok() == own {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and number of the file at `path`.
fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The request in what a client sent, whose line ends at `end`.
fn whole(said: &[u8], end: usize) -> Result<Request, String> {
    let (line, rest) = said.split_at_checked(end).unwrap_or_default();
    if rest.len() > 1 {
        return Err("there is more than one line; each request is a conversation of its own".into());
    }
    Request::parse(line)
}

/// An answer's line, with the end.
fn line(answer: &Answer) -> Vec<u8> {
    let line = match answer {
        Ok(value) => Line::Ok(value),
        Err(why) => Line::Error(why.clone()),
    };
    // What is made of JSON values can be written as JSON.
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
