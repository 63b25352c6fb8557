//! Prints the state of a running shim: `cargo run -p criscope-shim --example state -- DIR`.

use std::env;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use criscope_shim::SOCKET;
use criscope_shim::protocol::{self, Answer, Empty, Event, Hello, Incoming, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = env::args_os().nth(1).ok_or("usage: state DIR")?;
    let mut stream = UnixStream::connect(PathBuf::from(dir).join(SOCKET))?;
    let mut requests = Vec::new();
    protocol::encode_request(1, &Request::Hello(Hello::own()), &mut requests);
    protocol::encode_request(2, &Request::State(Empty {}), &mut requests);
    stream.write_all(&requests)?;
    loop {
        match protocol::decode_incoming(&read_frame(&mut stream)?)? {
            Incoming::Event(Ok(Event::Hello(hello))) => {
                println!("shim {}, protocol {}", hello.program, hello.version);
            }
            Incoming::Answer(2, answer) => {
                let Ok(Answer::State(state)) = answer else {
                    return Err("the shim did not answer with its state".into());
                };
                println!("pid {}, {} processes", state.pid, state.processes.len());
                for process in state.processes {
                    println!("{:?}", process);
                }
                return Ok(());
            }
            _ => {}
        }
    }
}

/// Reads one frame without its length.
fn read_frame(stream: &mut UnixStream) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let len = protocol::frame_len(&head)?.ok_or("no length")?;
    let mut frame = vec![0; len - head.len()];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}
