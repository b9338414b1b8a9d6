package io.raptormq.interop.scenarios;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.rocketmq.common.message.MessageExt;

/** The messages that consumers of a scenario received. Delivery is at least once, so counts are of different bodies. */
final class Inbox {
    private static final long PATIENCE_SECONDS = 120;

    private final List<MessageExt> messages = new ArrayList<>();
    private final Set<String> bodies = new TreeSet<>();

    synchronized void add(List<MessageExt> received) {
        messages.addAll(received);
        received.forEach(message -> bodies.add(text(message)));
        notifyAll();
    }

    /** Waits until so many different bodies have arrived. */
    void awaitBodies(int count) throws InterruptedException {
        await(inbox -> inbox.bodies.size() >= count, count + " bodies");
    }

    /** Waits until a condition on this inbox holds; fails after two minutes. */
    synchronized void await(Predicate<Inbox> condition, String what) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!condition.test(this)) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left <= 0) {
                throw new IllegalStateException("waited in vain for " + what + "; " + bodies.size() + " bodies arrived");
            }
            wait(left);
        }
    }

    synchronized Set<String> bodies() {
        return new TreeSet<>(bodies);
    }

    synchronized List<MessageExt> messages() {
        return new ArrayList<>(messages);
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
