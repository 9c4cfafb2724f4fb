//! The thread on which all calls to etcd run.

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// A thread with a runtime. It ends when this value is dropped.
#[derive(Debug)]
pub struct EtcdThread {
    handle: Handle,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl EtcdThread {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        let thread = std::thread::Builder::new()
            .name("etcd".into())
            .spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(EtcdThread {
            handle,
            end,
            thread: Some(thread),
        })
    }

    /// The runtime, to spawn tasks on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a call on the thread and blocks until it returns. `None` if the thread is ending.
    pub fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // Fails only if the caller has gone, which waits below.
            let _ = done.send(call.await);
        });
        result.recv().ok()
    }
}

impl Drop for EtcdThread {
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(thread) = self
            .thread
            .take()
            .filter(|t| t.thread().id() != std::thread::current().id())
        {
            // A panic of the thread was printed by it.
            let _ = thread.join();
        }
    }
}
