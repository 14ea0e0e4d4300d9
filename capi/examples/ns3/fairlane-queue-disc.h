// A queue discipline for ns-3 with Fairlane's order.
#ifndef FAIRLANE_QUEUE_DISC_H
#define FAIRLANE_QUEUE_DISC_H

#include <fairlane.h>

#include <ns3/queue-disc.h>

#include <string>
#include <vector>

namespace ns3
{

/**
 * Classes with weights, each with its own queue.
 *
 * The packet filters select a packet's class; without any, it is the priority of its socket, modulo the number
 * of classes. ns-3 stores the packets, in an internal queue for each class, and Fairlane their order: each is
 * queued in both, at the same place.
 */
class FairlaneQueueDisc : public QueueDisc
{
  public:
    static TypeId GetTypeId();

    FairlaneQueueDisc();
    ~FairlaneQueueDisc() override;

  private:
    void DoDispose() override;
    bool DoEnqueue(Ptr<QueueDiscItem> item) override;
    Ptr<QueueDiscItem> DoDequeue() override;
    bool CheckConfig() override;
    void InitializeParams() override;

    /// Returns the class of a packet.
    std::size_t ClassOf(Ptr<QueueDiscItem> item);
    /// Ends the simulation if a call failed unexpectedly.
    static void Check(const char* what, fl_status status);
    /// Closes the scheduler.
    void Close();

    std::string m_algorithm; //!< Name of the algorithm
    std::string m_weights;   //!< Weights of the classes, "3,1"
    uint32_t m_maxLength;    //!< Longest packet, in bytes
    uint32_t m_limit;        //!< Limit of queued packets in a class

    std::vector<uint32_t> m_weightOf; //!< By class
    std::vector<fl_flow> m_flowOf;    //!< By class
    fl_scheduler m_scheduler;         //!< The order of packets
};

} // namespace ns3

#endif // FAIRLANE_QUEUE_DISC_H
