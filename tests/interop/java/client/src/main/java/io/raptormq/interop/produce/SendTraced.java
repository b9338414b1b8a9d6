package io.raptormq.interop.produce;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends messages with a message trace and prints their ids, one a line. Arguments: name servers, topic, number of messages. */
public final class SendTraced {
    private SendTraced() {}

    public static void main(String[] arguments) {
        int code = 1;
        try {
            send(arguments[0], arguments[1], Integer.parseInt(arguments[2]));
            code = 0;
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(code); // threads of the client would keep the process
    }

    private static void send(String nameServers, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("send-traced");
        producer.setNamesrvAddr(nameServers);
        producer.setEnableTrace(true);
        producer.start();
        for (int number = 0; number < count; number++) {
            Message message = new Message(topic, String.valueOf(number).getBytes(StandardCharsets.UTF_8));
            System.out.println(producer.send(message).getMsgId());
        }
        producer.shutdown();
    }
}
