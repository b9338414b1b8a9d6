package io.raptormq.interop.load;

import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** One way of sending; several threads run it at the same time. */
interface Load {
    /** How many threads send. */
    int threads();

    /** Sends until the window is over, telling it of every message that was answered. */
    void send(DefaultMQProducer producer, String topic, Window window) throws InterruptedException;
}
