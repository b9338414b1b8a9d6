package io.raptormq.bench.load;

import java.util.ArrayList;
import java.util.List;

/** The threads that send: one per producer, but no more than there are CPUs; a thread with several producers takes them in turn. */
final class Senders {
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean over;

    void start(List<Peer.Sender> producers, Bodies bodies, Pace pace, Meter meter) {
        int count = Math.min(producers.size(), Runtime.getRuntime().availableProcessors());
        for (int i = 0; i < count; i++) {
            List<Peer.Sender> mine = new ArrayList<>();
            for (int j = i; j < producers.size(); j += count) {
                mine.add(producers.get(j));
            }
            Thread thread = new Thread(() -> send(mine, bodies, pace, meter), "sender-" + i);
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
    }

    private void send(List<Peer.Sender> producers, Bodies bodies, Pace pace, Meter meter) {
        while (!over) {
            for (Peer.Sender producer : producers) {
                pace.await();
                sendOne(producer, bodies.any(), meter);
            }
        }
    }

    /** A send that fails at once counts like one that fails later. */
    static void sendOne(Peer.Sender producer, byte[] body, Meter meter) {
        long start = System.nanoTime();
        try {
            producer.send(body, error -> meter.answered(start, error));
        } catch (Exception error) {
            meter.answered(start, error);
        }
    }

    /** Ends the sending; a send that still waits for room does not keep the program alive. */
    void stop() throws InterruptedException {
        over = true;
        for (Thread thread : threads) {
            thread.join(1000);
        }
    }
}
