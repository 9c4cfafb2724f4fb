//! Packets between processes that carry open files.
//!
//! The holder of the socket calls it; it keeps no state. No function blocks.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Maximum number of descriptors in one packet.
const MOST: usize = 8;
/// Size of the control buffer for them and their header. In bytes.
const CONTROL: usize = 64;

/// Aligned as a `cmsghdr` must be.
#[repr(C, align(8))]
struct ControlMessageBuffer([u8; CONTROL]);

/// The two ends of a packet socket; both are close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [libc::c_int; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `ends` has the size of two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [one, other] = ends;
    // SAFETY: both are new and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(one), OwnedFd::from_raw_fd(other)) })
}

/// Sends a packet with at most eight descriptors. `WouldBlock` when the buffer of the other end is
/// full.
pub fn send(to: impl AsFd, packet: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    if files.len() > MOST {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut text = libc::iovec {
        iov_base: packet.as_ptr().cast_mut().cast(),
        iov_len: packet.len(),
    };
    let mut control = ControlMessageBuffer([0; CONTROL]);
    let bytes = u32::try_from(size_of_val(files)).map_err(io::Error::other)?;
    let mut message = message(&mut text);
    if !files.is_empty() {
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: arithmetic only. Eight descriptors with their header take 48 of the 64 bytes.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
        // SAFETY: the buffer fits one header and the descriptors, and is zeroed and aligned;
        // CMSG_DATA points into it.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(bytes) as _;
            let data = libc::CMSG_DATA(head).cast::<libc::c_int>();
            for (n, file) in files.iter().enumerate() {
                data.add(n).write_unaligned(file.as_raw_fd());
            }
        }
    }
    // SAFETY: the message refers to live memory only, which the kernel reads. The borrowed
    // descriptors are open.
    let sent = unsafe {
        libc::sendmsg(
            to.as_fd().as_raw_fd(),
            &message,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Receives the next packet with its descriptors; a length of 0 is the end. `WouldBlock` when there
/// is none.
pub fn receive(from: impl AsFd, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut text = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    let mut control = ControlMessageBuffer([0; CONTROL]);
    let mut message = message(&mut text);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message refers to live memory of the given lengths.
    let length = unsafe { libc::recvmsg(from.as_fd().as_raw_fd(), &mut message, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut files = Vec::new();
    // SAFETY: the kernel has filled the control memory and set its length; the macros stay within
    // it.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !head.is_null() {
        // SAFETY: `head` is a header within the control memory. The descriptors that follow it, as
        // many as its length says, are new and have no other owner.
        unsafe {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*head).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(head).cast::<libc::c_int>();
                files.extend(
                    (0..bytes / size_of::<libc::c_int>())
                        .map(|n| OwnedFd::from_raw_fd(data.add(n).read_unaligned())),
                );
            }
            head = libc::CMSG_NXTHDR(&message, head);
        }
    }
    Ok((length, files))
}

fn message(text: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: a msghdr of zeros refers to no memory.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = text;
    message.msg_iovlen = 1;
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_packet_carries_open_files() {
        let (one, other) = pair().expect("a pair");
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut room = [0; 64];
        assert_eq!(
            receive(&other, &mut room).expect_err("nothing yet").kind(),
            io::ErrorKind::WouldBlock
        );
        send(&one, b"two files", &[writer.as_fd(), reader.as_fd()]).expect("sends");
        send(&one, b"none", &[]).expect("sends");
        let (length, mut files) = receive(&other, &mut room).expect("receives");
        assert_eq!((&room[..length], files.len()), (&b"two files"[..], 2));
        drop((reader, writer));
        let (mut reader, mut writer) = (File::from(files.remove(1)), File::from(files.remove(0)));
        writer.write_all(b"through").expect("writes");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "through");
        assert_eq!(
            receive(&other, &mut room)
                .map(|(length, files)| (length, files.len()))
                .expect("receives"),
            (4, 0)
        );
        drop(one);
        assert_eq!(receive(&other, &mut room).expect("the end").0, 0);
        assert!(send(&other, b"no reader", &[]).is_err());
    }
}
