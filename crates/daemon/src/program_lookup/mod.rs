//! Which program a local connection belongs to, as far as the kernel can tell.
//!
//! The kernel knows the socket at the other end by its two addresses (sock_diag(7)), and with it an
//! inode; which process holds that inode is only in its list of open files. To read all those takes
//! milliseconds, so it is done on a thread of its own, which spends at most a tenth of its time on it
//! and first looks where it found something before.

mod processes;

use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use lasthop_control::priority::Program;
use lasthop_kernel::netlink::{Ends, Owners};
use lasthop_kernel::wake::Wake;

use self::processes::Processes;

/// Questions that may wait; of more the programs stay unknown.
const QUEUE_MAX: usize = 1024;

/// Recognises programs on a thread of its own. Its descriptor is readable when answers wait.
#[derive(Debug)]
pub(crate) struct ProgramLookup {
    questions: SyncSender<(u64, Ends)>,
    answers: Receiver<(u64, Program)>,
    wake: Arc<Wake>,
}

impl ProgramLookup {
    /// Starts the thread, which ends when no more can be asked.
    ///
    /// # Errors
    ///
    /// The kernel has no descriptor or thread left.
    pub(crate) fn start() -> io::Result<Self> {
        let wake = Arc::new(Wake::new()?);
        let (questions, asked) = mpsc::sync_channel(QUEUE_MAX);
        let (found, answers) = mpsc::channel();
        let thread = thread::Builder::new().name("programs".to_owned());
        let theirs = Arc::clone(&wake);
        thread.spawn(move || work(&asked, &found, &theirs))?;
        Ok(Self { questions, answers, wake })
    }

    /// Asks whose the connection between `ends` is; `tag` is for the answer. Of a program that is not
    /// found there is no answer.
    pub(crate) fn request(&self, tag: u64, ends: Ends) {
        // Nor is there one where too many wait.
        let _ = self.questions.try_send((tag, ends));
    }

    /// The next answer, if one is here.
    pub(crate) fn poll(&self) -> Option<(u64, Program)> {
        self.answers.try_recv().ok()
    }

    /// Forgets the wake-ups so far; call before [`poll`](Self::poll).
    pub(crate) fn drain(&self) {
        self.wake.drain();
    }
}

impl AsFd for ProgramLookup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn work(questions: &Receiver<(u64, Ends)>, answers: &Sender<(u64, Program)>, wake: &Wake) {
    let (mut owners, mut processes) = (Owners::new(), Processes::new());
    while let Ok(first) = questions.recv() {
        // One scan is for all that wait.
        let waiting = iter::once(first).chain(questions.try_iter()).take(QUEUE_MAX);
        let sockets: Vec<(u64, u64)> =
            waiting.filter_map(|(tag, ends)| Some((tag, owners.inode(ends)?))).collect();
        for (tag, program) in processes.find(&sockets) {
            if answers.send((tag, program)).is_err() {
                return;
            }
        }
        wake.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use lasthop_kernel::reactor::{Interest, Reactor};

    use super::*;

    /// The next answer, or none if nothing comes for so long.
    fn answer(programs: &ProgramLookup, patience: Duration) -> Option<(u64, Program)> {
        let mut reactor = Reactor::new().unwrap();
        reactor.add(programs, Interest::Read, ()).unwrap();
        let (mut ready, end) = (Vec::new(), Instant::now() + patience);
        loop {
            programs.drain();
            if let Some(answer) = programs.poll() {
                return Some(answer);
            }
            let left = end.checked_duration_since(Instant::now())?;
            reactor.wait(Some(left), &mut ready).unwrap();
        }
    }

    fn connection(listen: &str) -> (TcpStream, TcpStream, Ends) {
        let listener = TcpListener::bind(listen).unwrap();
        let server = listener.local_addr().unwrap();
        let ours = TcpStream::connect(server).unwrap();
        let (accepted, client) = listener.accept().unwrap();
        (ours, accepted, Ends::tcp(client, server))
    }

    #[test]
    fn a_connection_of_this_very_program_is_recognised() {
        let programs = ProgramLookup::start().unwrap();
        let binary = std::env::current_exe().unwrap();
        let binary = binary.file_name().unwrap().to_str().unwrap();
        for (tag, listen) in [(7, "127.0.0.1:0"), (8, "[::1]:0")] {
            let (ours, accepted, ends) = connection(listen);
            programs.request(tag, ends);
            let (answered, program) = answer(&programs, Duration::from_secs(30)).unwrap();
            assert_eq!(answered, tag);
            assert!(program.is(binary), "{program:?} is not {binary}");
            drop((ours, accepted));
        }
    }

    #[test]
    fn a_connection_that_nobody_here_has_stays_unknown() {
        let programs = ProgramLookup::start().unwrap();
        let (ours, accepted, ends) = connection("127.0.0.1:0");
        let nobody = Ends { client: "192.0.2.1:9".parse().unwrap(), ..ends };
        programs.request(1, nobody);
        programs.request(2, ends);
        assert_eq!(answer(&programs, Duration::from_secs(30)).map(|answer| answer.0), Some(2));
        assert!(programs.poll().is_none());
        drop((ours, accepted));
    }
}
