package io.raptormq.bench.load;

import java.util.function.Consumer;
import java.util.function.LongConsumer;

/** A message system through its official client. */
public interface Peer {
    /** Creates a topic and returns when it can be used. */
    void createTopic(String topic, int queues) throws Exception;

    /** Starts one more consumer of the one group; {@code born} gets the time of birth of every message, in milliseconds since 1970. */
    void consume(String topic, LongConsumer born) throws Exception;

    /** Opens one more producer. */
    Sender sender(String topic) throws Exception;

    /** One producer. */
    interface Sender {
        /** Sends without waiting, or waits for room; {@code answer} gets null, or what went wrong. */
        void send(byte[] body, Consumer<Throwable> answer) throws Exception;
    }
}
