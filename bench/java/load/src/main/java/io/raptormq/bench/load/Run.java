package io.raptormq.bench.load;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.HdrHistogram.Histogram;

/**
 * One run: topic, consumers, producers, a message that proves that all are ready, warm-up, measured part, and a look at what is still on
 * its way.
 *
 * <p>Settings: queues, producers, consumers (0: publish only), rate (messages per second of all producers), body_bytes, warm_up and seconds,
 * max_messages (ends the measured part early and bounds the disk). Prints "measuring" and "measured" at the ends of the measured part, then
 * "result " with JSON.
 */
public final class Run {
    private static final String TOPIC = "batch-bench";
    private static final int READY_SECONDS = 60;
    private static final int DRAIN_SECONDS = 10;
    private static final int POLL_MILLIS = 5;

    private final Peer peer;
    private final Settings settings;
    private final Meter meter = new Meter();
    private final Bodies bodies;
    private final boolean consumed;

    private Run(Peer peer, Settings settings) {
        this.peer = peer;
        this.settings = settings;
        this.bodies = new Bodies(settings.number("body_bytes"));
        this.consumed = settings.number("consumers") > 0;
    }

    /** Runs to the end of the process: exit code 0, or 1 with the error on standard error. */
    public static void main(Peer peer, Settings settings) {
        try {
            new Run(peer, settings).play();
            System.out.flush();
            Runtime.getRuntime().halt(0); // closing clients with thousands of queues takes longer than a run
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    private void play() throws Exception {
        peer.createTopic(TOPIC, settings.number("queues"));
        for (int i = 0; i < settings.number("consumers"); i++) {
            peer.consume(TOPIC, meter::received);
        }
        List<Peer.Sender> producers = new ArrayList<>();
        for (int i = 0; i < settings.number("producers"); i++) {
            producers.add(peer.sender(TOPIC));
        }
        awaitReady(producers.get(0));
        Senders senders = new Senders();
        senders.start(producers, bodies, new Pace(settings.number("rate")), meter);
        TimeUnit.SECONDS.sleep(settings.number("warm_up"));
        System.out.println("measuring");
        Meter.Counts begin = meter.begin();
        Meter.Counts end = awaitEnd(begin);
        Histogram publish = meter.publishMicros();
        Histogram endToEnd = meter.endToEndMicros();
        System.out.println("measured");
        senders.stop();
        Map<String, Object> result = result(begin, end, publish, endToEnd);
        result.putAll(drain(end));
        if (meter.firstError() != null) {
            result.put("first_error", quoted(meter.firstError().toString()));
        }
        System.out.println("result " + json(result));
    }

    private void awaitReady(Peer.Sender producer) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_SECONDS);
        while (!isReady()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not ready after " + READY_SECONDS + " s: " + meter.counts() + " " + meter.firstError());
            }
            Senders.sendOne(producer, bodies.any(), meter);
            long again = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
            while (!isReady() && System.nanoTime() < again) {
                TimeUnit.MILLISECONDS.sleep(POLL_MILLIS);
            }
        }
    }

    private boolean isReady() {
        Meter.Counts counts = meter.counts();
        return counts.sent() > 0 && (!consumed || counts.received() > 0);
    }

    private Meter.Counts awaitEnd(Meter.Counts begin) throws InterruptedException {
        long deadline = begin.nanos() + TimeUnit.SECONDS.toNanos(settings.number("seconds"));
        long most = begin.sent() + settings.number("max_messages");
        Meter.Counts now = begin;
        while (now.nanos() < deadline && now.sent() < most) {
            TimeUnit.MILLISECONDS.sleep(POLL_MILLIS);
            now = meter.counts();
        }
        return now;
    }

    /** How long the consumers took for what was left, and how much never came. */
    private Map<String, Object> drain(Meter.Counts end) throws InterruptedException {
        Map<String, Object> found = new LinkedHashMap<>();
        if (consumed) {
            long deadline = end.nanos() + TimeUnit.SECONDS.toNanos(DRAIN_SECONDS);
            Meter.Counts now = meter.counts();
            while (now.received() < now.sent() && now.nanos() < deadline) {
                TimeUnit.MILLISECONDS.sleep(POLL_MILLIS);
                now = meter.counts();
            }
            found.put("drain_seconds", (now.nanos() - end.nanos()) / 1e9);
            found.put("undelivered", Math.max(now.sent() - now.received(), 0));
            found.put("surplus", Math.max(now.received() - now.sent() - now.failed(), 0));
        }
        return found;
    }

    private Map<String, Object> result(Meter.Counts begin, Meter.Counts end, Histogram publish, Histogram endToEnd) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("seconds", (end.nanos() - begin.nanos()) / 1e9);
        result.put("sent", end.sent() - begin.sent());
        result.put("failed", end.failed() - begin.failed());
        result.put("publish_p50_ms", publish.getValueAtPercentile(50) / 1e3);
        result.put("publish_p99_ms", publish.getValueAtPercentile(99) / 1e3);
        if (consumed) {
            result.put("received", end.received() - begin.received());
            result.put("end_to_end_p50_ms", endToEnd.getValueAtPercentile(50) / 1e3);
            result.put("end_to_end_p99_ms", endToEnd.getValueAtPercentile(99) / 1e3);
            result.put("backlog", Math.max(end.sent() - end.received(), 0));
        }
        return result;
    }

    private static String quoted(String text) {
        return "\"" + text.replaceAll("[\\\\\"\\p{Cntrl}]", " ").trim() + "\"";
    }

    private static String json(Map<String, Object> values) {
        return values.entrySet().stream()
                .map(each -> "\"" + each.getKey() + "\": " + each.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
    }
}
