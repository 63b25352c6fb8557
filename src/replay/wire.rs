//! Changes single fields of an encoded protobuf message and leaves every other byte as it is, unknown fields included.

/// The message is no protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the recorded request is damaged")]
pub(super) struct InvalidProtobuf;

/// Replaces the contents of each field at `path`, a list of field numbers, by the result of `change`; `None` keeps it.
pub(super) fn edit(
    message: &[u8],
    path: &[u64],
    change: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, InvalidProtobuf> {
    let Some((first, below)) = path.split_first() else {
        return Ok(change(message).unwrap_or_else(|| message.to_vec()));
    };
    let mut out = Vec::with_capacity(message.len());
    let mut rest = message;
    while !rest.is_empty() {
        let field = rest;
        let key = varint(&mut rest)?;
        let len = match key & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut rest)?).map_err(|_| InvalidProtobuf)?,
            _ => return Err(InvalidProtobuf),
        };
        let (content, after) = rest.split_at_checked(len).ok_or(InvalidProtobuf)?;
        rest = after;
        if key & 7 == 2 && key >> 3 == *first {
            let new = edit(content, below, change)?;
            put_varint(&mut out, key);
            put_varint(&mut out, new.len() as u64);
            out.extend_from_slice(&new);
        } else {
            out.extend_from_slice(&field[..field.len() - rest.len()]);
        }
    }
    Ok(out)
}

/// The contents of each field at `path`, as text; empty ones are left out.
pub(super) fn texts(message: &[u8], path: &[u64]) -> Result<Vec<String>, InvalidProtobuf> {
    let mut found = Vec::new();
    edit(message, path, &mut |content| {
        found.push(String::from_utf8_lossy(content).into_owned());
        None
    })?;
    found.retain(|text| !text.is_empty());
    Ok(found)
}

fn varint(rest: &mut &[u8]) -> Result<u64, InvalidProtobuf> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(InvalidProtobuf)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(InvalidProtobuf)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::cri::v1;

    #[test]
    fn one_field_changes_and_unknown_ones_stay() {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: "old".into(),
            config: Some(v1::ContainerConfig {
                tty: true,
                log_path: "app.log".into(),
                ..Default::default()
            }),
            sandbox_config: None,
        };
        let mut bytes = request.encode_to_vec();
        // Fields 100 (text), 101 (64 bits) and 102 (32 bits) of a later CRI.
        let later = [
            0xa2, 6, 2, b'h', b'i', 0xa9, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0xb5, 6, 1, 2, 3, 4,
        ];
        bytes.extend_from_slice(&later);
        let longer = "n".repeat(300);
        let new = edit(&bytes, &[1], &mut |_| Some(longer.clone().into_bytes())).expect("sound");
        assert!(new.ends_with(&later));
        let read = v1::CreateContainerRequest::decode(&*new).expect("decoded");
        assert_eq!(read.pod_sandbox_id, longer);
        assert!(read.config == request.config);
        assert_eq!(texts(&new, &[2, 11]), Ok(vec!["app.log".to_owned()]));
        assert_eq!(
            edit(&bytes, &[2, 11], &mut |_| None).as_deref(),
            Ok(&*bytes)
        );
        for end in [1, 4, bytes.len() - 1] {
            assert_eq!(
                texts(&bytes[..end], &[9]),
                Err(InvalidProtobuf),
                "cut at {end}"
            );
        }
    }
}
