//! The encoding of version 1: numbers in little endian, strings and lists prefixed with their length, records without lengths
//! or tags, so that fields cannot be added.

use criscope_shim::protocol::{
    Attach, Create, Empty, Exec, Exit, Failure, Hello, Kill, Malformed, Oom, Process, Resize,
    Runtime, Shutdown, State, Stdio, Target, Verb,
};

/// The encoding of a type.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;
}

macro_rules! number {
    ($($ty:ty),*) => {$(
        impl Field for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (head, rest) = from.split_first_chunk().ok_or(Malformed)?;
                *from = rest;
                Ok(Self::from_le_bytes(*head))
            }
        }
    )*};
}

number!(u8, u16, u32, i32, u64);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let len = u32::take(from)? as usize;
        let (head, rest) = from.split_at_checked(len).ok_or(Malformed)?;
        *from = rest;
        Self::from_utf8(head.to_vec()).map_err(|_| Malformed)
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let len = u32::take(from)?;
        (0..len).map(|_| T::take(from)).collect()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

/// Declares the fields of a message in version 1, in order. Later fields get their defaults.
macro_rules! layout {
    ($($name:ident { $($field:ident),* })*) => {$(
        #[allow(unused_variables, clippy::needless_update)]
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(Self { $($field: Field::take(from)?,)* ..Self::default() })
            }
        }
    )*};
}

layout! {
    Target { container, exec }
    Stdio { tty, stdin, stdin_once, hold, log, max_line }
    Runtime { argv, env, args, timeout_ms }
    Create { id, bundle, stdio, runtime }
    Exec { target, process, stdio, runtime }
    Verb { id, runtime }
    Kill { target, signal, all }
    Attach { target, stdin, stdout, stderr }
    Shutdown { force }
    Empty {}
    Hello { version }
    Exit { target, pid, code, signal, oom_kills, at }
    Process { target, pid, started_at, exit, log_lost, attached }
    State { pid, pid_namespace, processes }
    Oom { id, kills }
}

impl Field for Resize {
    fn put(&self, out: &mut Vec<u8>) {
        self.target.put(out);
        for size in [self.width, self.height] {
            u16::try_from(size).unwrap_or(u16::MAX).put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            target: Field::take(from)?,
            width: u16::take(from)?.into(),
            height: u16::take(from)?.into(),
        })
    }
}

impl Field for Failure {
    fn put(&self, out: &mut Vec<u8>) {
        u8::try_from(self.kind).unwrap_or(u8::MAX).put(out);
        self.message.put(out);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            kind: u8::take(from)?.into(),
            message: Field::take(from)?,
        })
    }
}
