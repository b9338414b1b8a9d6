package io.raptormq.bench.rocketmq;

import io.raptormq.bench.load.Peer;
import io.raptormq.bench.load.Run;
import io.raptormq.bench.load.Settings;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's client: asynchronous sends with back pressure, push consumers.
 *
 * <p>Settings besides those of {@link Run}: server (name server), queue_type, auto_batch, batch_bytes, delay_ms, total_bytes, under_way (most
 * requests that wait for an answer).
 */
public final class RocketMqLoad implements Peer {
    private static final int ADMIN_TIMEOUT_MILLIS = 60_000;
    private static final int READ_AND_WRITE = 6;

    private final Settings settings;
    private DefaultMQProducer producer;
    private int consumers;

    private RocketMqLoad(Settings settings) {
        this.settings = settings;
    }

    public static void main(String[] arguments) {
        Settings settings = Settings.parse(arguments);
        Run.main(new RocketMqLoad(settings), settings);
    }

    /** So many queues on every master, or leader of a group. */
    @Override
    public void createTopic(String topic, int queues) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(ADMIN_TIMEOUT_MILLIS);
        admin.setNamesrvAddr(settings.text("server"));
        admin.start();
        TopicConfig config = new TopicConfig(topic, queues, queues, READ_AND_WRITE);
        config.getAttributes().put("+queue.type", settings.text("queue_type"));
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), config);
        }
        admin.shutdown();
    }

    @Override
    public void consume(String topic, LongConsumer born) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("batch-bench");
        consumer.setNamesrvAddr(settings.text("server"));
        consumer.setInstanceName("consumer-" + consumers++);
        consumer.setVipChannelEnabled(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                born.accept(message.getBornTimestamp());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    /** All producers are one client, as in that benchmark. */
    @Override
    public Sender sender(String topic) throws Exception {
        if (producer == null) {
            producer = producer();
        }
        return (body, answer) -> producer.send(new Message(topic, body), new Answer(answer));
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer made = new DefaultMQProducer("batch-bench");
        made.setNamesrvAddr(settings.text("server"));
        made.setInstanceName("producer");
        made.setVipChannelEnabled(false);
        made.setAutoBatch(settings.isOn("auto_batch"));
        made.batchMaxBytes(settings.number("batch_bytes"));
        made.batchMaxDelayMs(settings.number("delay_ms"));
        made.totalBatchMaxBytes(settings.number("total_bytes"));
        made.setEnableBackpressureForAsyncMode(true);
        made.setBackPressureForAsyncSendNum(settings.number("under_way"));
        made.start();
        return made;
    }

    private record Answer(Consumer<Throwable> answer) implements SendCallback {
        @Override
        public void onSuccess(SendResult result) {
            answer.accept(null);
        }

        @Override
        public void onException(Throwable error) {
            answer.accept(error);
        }
    }
}
