//! Connections in an image.

use super::{Asked, Connection, ConnectionKind, Outstanding};
use crate::{
    image::{ImageError, Reader, Stored, Writer},
    output::Output,
    store::Store,
    transaction::Transaction,
};

impl Stored for ConnectionKind {
    fn save(&self, out: &mut Writer<'_>) {
        let domid = match self {
            Self::Socket => None,
            Self::Domain(domid) => Some(*domid),
        };
        domid.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        let domid: Option<_> = input.get()?;
        Ok(domid.map_or(Self::Socket, Self::Domain))
    }
}

impl Stored for Asked {
    fn save(&self, out: &mut Writer<'_>) {
        let Self { header, question, payload } = self;
        header.save(out);
        question.save(out);
        payload.save(out);
    }

    fn restore(input: &mut Reader<'_>) -> Result<Self, ImageError> {
        Ok(Self { header: input.get()?, question: input.get()?, payload: input.get()? })
    }
}

impl Connection {
    /// Writes a connection with its transactions on `store`.
    pub(crate) fn save(&self, store: &Store, out: &mut Writer<'_>) {
        let Self {
            kind,
            life,
            input,
            output,
            transactions,
            last_tx,
            // Those of the watches themselves.
            watches: _,
            watch_bytes: _,
            asked,
            ready,
            // The shell of a restored engine looks at everything anew.
            deferred: _,
            // The shell of a restored engine is told of all that is unsent.
            flushing: _,
            closing,
            outstanding,
            next_request,
            slowed_until,
            penalty,
            progress,
            // Replies that wait for the shell of a restored engine are remembered.
            reads_since: _,
            alarm,
            // By what is in them.
            accounted: _,
        } = self;
        kind.save(out);
        life.save(out);
        last_tx.save(out);
        asked.save(out);
        ready.save(out);
        closing.save(out);
        next_request.save(out);
        slowed_until.save(out);
        penalty.save(out);
        alarm.save(out);
        // It counts for what is unsent.
        let waits = Some(*progress).filter(|_| !output.unsent().is_empty());
        waits.unwrap_or_default().save(out);
        out.many_bytes(input);
        out.record();
        output.save(out);
        out.record();
        out.count(outstanding.len());
        for (request, missing) in outstanding.iter() {
            out.record();
            request.save(out);
            missing.save(out);
        }
        out.record();
        out.count(transactions.len());
        for transaction in transactions.values() {
            out.record();
            transaction.save(store, out);
        }
    }

    /// Reads a connection with its transactions on `store`; its watches are to be counted.
    pub(crate) fn restore(input: &mut Reader<'_>, store: &Store) -> Result<Self, ImageError> {
        let mut connection = Self::new(input.get()?, input.get()?);
        connection.last_tx = input.get()?;
        connection.asked = input.get()?;
        connection.ready = input.get()?;
        connection.closing = input.get()?;
        connection.next_request = input.get()?;
        connection.slowed_until = input.get()?;
        connection.penalty = input.get()?;
        connection.alarm = input.get()?;
        connection.progress = input.get()?;
        connection.input = input.many_bytes()?;
        input.record()?;
        connection.output = Output::restore(input)?;
        input.record()?;
        connection.outstanding = outstanding(input)?;
        input.record()?;
        let count: usize = input.get()?;
        for _ in 0..count {
            input.record()?;
            let transaction = Transaction::restore(input, store)?;
            connection.transactions.insert(transaction.id, Box::new(transaction));
        }
        Ok(connection)
    }
}

fn outstanding(input: &mut Reader<'_>) -> Result<Outstanding, ImageError> {
    let mut outstanding = Outstanding::default();
    let count: usize = input.get()?;
    for _ in 0..count {
        input.record()?;
        let (request, missing) = (input.get()?, input.get()?);
        if missing == 0 {
            return Err(input.wrong("a number of missing messages"));
        }
        outstanding.add(request, missing);
    }
    Ok(outstanding)
}
